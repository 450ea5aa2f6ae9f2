"""items=N: every loop over a loader gives one batch of N different items, and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.flow.pipeline import Pictures, Stream, loader, train
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from sonde import flow

pytestmark = pytest.mark.usefixtures("nothing_left", "few_workers")


def indices(trace: flow.TraceResult) -> list[Any]:
    """The items of which calls were captured."""
    return [item.index for item in trace.known_items()]


MAP_STYLE: dict[str, Callable[[], Any]] = {
    "plain": loader,
    "shuffled": lambda: loader(shuffle=True),
    "one by one": lambda: loader(batch_size=1),
    "drop_last": lambda: loader(drop_last=True),
    "drop_last, batch larger than the data": lambda: loader(batch_size=64, drop_last=True),
    "batch_sampler": lambda: DataLoader(Pictures(), batch_sampler=BatchSampler(RandomSampler(range(50)), 2, False)),
    "list of batches": lambda: DataLoader(Pictures(), batch_sampler=[[5, 6], [7, 5], [8, 9]]),
    "a list": lambda: loader([float(n) for n in range(9)]),
    "tensors": lambda: DataLoader(TensorDataset(torch.arange(9.0)), batch_size=3),
    "subset": lambda: loader(Subset(Pictures(), range(40, 50))),
    "chain": lambda: loader(ConcatDataset([Pictures(3), Pictures(9)])),
    "with replacement": lambda: loader(sampler=RandomSampler(Pictures(5), replacement=True, num_samples=100)),
    "workers": lambda: loader(num_workers=2),
    "persistent workers": lambda: loader(num_workers=2, persistent_workers=True),
}


@pytest.mark.parametrize("name", MAP_STYLE)
def test_one_batch_of_so_many_different_items(name: str) -> None:
    """Then the loop ends by itself; the length agrees; afterwards the loader is as before."""
    data = MAP_STYLE[name]()
    before, state = len(data), dict(vars(data))
    with flow.trace(items=4) as trace:
        batches = list(data)
        assert len(data) == 1
    assert len(batches) == 1
    assert len(set(indices(trace))) == 4
    assert len(trace.collate) == 1
    assert trace.notes == []
    assert len(data) == before
    assert vars(data) == state


def test_a_loader_made_in_the_block_is_limited_too() -> None:
    """As is one that was made before."""
    with flow.trace(items=3):
        assert [len(batch["label"]) for batch in loader()] == [3]


def test_without_batching_so_many_items_come_one_by_one() -> None:
    """The length agrees."""
    data = DataLoader(Pictures(), batch_size=None)
    with flow.trace(items=4) as trace:
        assert len(list(data)) == len(data) == 4
    assert indices(trace) == [0, 1, 2, 3]


def test_a_sampler_that_gives_lists_gives_one_list() -> None:
    """Which then is the batch."""
    groups = BatchSampler(SequentialSampler(range(50)), 8, drop_last=False)
    data = loader(torch.arange(50), batch_size=None, sampler=groups)
    with flow.trace(items=4):
        assert [batch.tolist() for batch in data] == [[0, 1, 2, 3]]
        assert len(data) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_dataset_is_asked_for_so_many_items(workers: int) -> None:
    """Also an endless one."""
    data = DataLoader(Stream(1000), batch_size=8, num_workers=workers)
    with flow.trace(items=4) as trace:
        assert [len(batch) for batch in data] == [4]
        assert len(data) == 1
    assert len(trace.dataset_getter) == 4
    assert [call.disp_name for call in trace.dataset_getter] == ["Stream__iter__"] * 4


def test_an_iterable_dataset_without_batching() -> None:
    """Items one by one."""
    data = DataLoader(Stream(1000), batch_size=None)
    with flow.trace(items=4):
        assert len(list(data)) == len(data) == 4


@pytest.mark.parametrize("dataset", [Pictures(3), Stream(3)], ids=["map", "iterable"])
def test_more_items_than_there_are_gives_what_there_is_and_says_so(dataset: Any) -> None:
    """In the notes, which are printed with the result."""
    with flow.trace(items=5) as trace:
        (batch,) = loader(dataset)
    assert len(batch["label"] if isinstance(batch, dict) else batch) == 3
    assert trace.notes == ["A loader delivered only 3 of the 5 requested items: it has no more."]
    assert trace.notes[0] in str(trace)


def test_no_items_at_all() -> None:
    """No batch, and a note."""
    with flow.trace(items=2) as trace:
        data = DataLoader(Pictures(), sampler=[])
        assert list(data) == []
        assert len(data) == 0
    assert "only 0 of the 2" in trace.notes[0]


def test_a_second_loader_for_validation_is_limited_on_its_own() -> None:
    """Each call knows its loader."""
    with flow.trace(items=2) as trace:
        train(loader(shuffle=True))
        for batch in loader(Pictures(30)):
            batch["image"].to("cpu")
    assert [call.about.loader for call in trace.collate] == [0, 1]
    assert len(trace.prepare_inputs) == 3


def test_each_round_over_a_loader_is_one_batch() -> None:
    """A loop of three epochs makes three steps."""
    with flow.trace(items=2) as trace:
        assert len(train(loader(), epochs=3)) == 3
    assert [call.about.epoch for call in trace.collate] == [0, 1, 2]


def test_a_class_of_loaders_that_adds_to_the_iteration() -> None:
    """As accelerate has them."""

    class Twice(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            for batch in super().__iter__():
                yield batch
                yield batch

    with flow.trace(items=2):
        assert len(list(Twice(Pictures()))) == 2


def test_a_trace_inside_keeps_the_limit() -> None:
    """It observes what the program does, and that is limited."""
    with flow.trace(items=2), flow.trace() as inner:
        assert len(list(loader())) == 1
    assert len(inner.dataset_getter["Pictures__getitem__"]) == 2


def test_a_sampler_that_raises_raises_in_the_loop() -> None:
    """It is the program's error."""

    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise OSError("no list of files")

        def __len__(self) -> int:
            return 3

    with pytest.raises(OSError, match="no list"), flow.trace(items=2):
        list(DataLoader(Pictures(), sampler=Broken()))
