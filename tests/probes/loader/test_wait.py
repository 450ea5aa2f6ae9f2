"""The probe of loaders: what each wait was for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import (  # noqa: E402
    Fetched,
    Nested,
    Numbers,
    Stream,
    fetched,
    record_epochs,
    waits,
)

from sonde import session  # noqa: E402
from sonde.probes.loader import fetch  # noqa: E402
from sonde.store.probe import ITER_END, OFF, PREFETCH, batch_key  # noqa: E402
from sonde.testing import record  # noqa: E402

DataLoader = torch.utils.data.DataLoader
BatchSampler = torch.utils.data.BatchSampler
Subset = torch.utils.data.Subset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left"),
]


def test_a_loop_that_is_left_early_and_begun_again() -> None:
    """The next round begins at 0."""
    data = DataLoader(Numbers(6), batch_size=2)
    with record() as recorded:
        for _ in data:
            break
        list(data)
    assert waits(recorded) == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_the_end_of_workers_is_a_wait_for_no_batch() -> None:
    """It has a name of its own, and the key of the round. Whoever stops before the end never sees it."""
    data = DataLoader(Numbers(4), batch_size=2, num_workers=1, multiprocessing_context="fork")
    with record() as recorded:
        list(data)
        next(iter(data))
        list(data)
    assert waits(recorded, ITER_END) == [(0, 0), (2, 0)]
    assert waits(recorded) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert len(recorded.named("samples")) == 5


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_of_a_loop_without_workers_is_recorded_too(stream: bool) -> None:
    """It tells a loop that went on to its end from one that was left."""
    recorded = record_epochs(DataLoader(Stream(4) if stream else Numbers(4), batch_size=2), 2)
    assert waits(recorded, ITER_END) == [(0, 0), (1, 0)]


def test_a_probe_that_fails_is_off_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, expected: set[str]
) -> None:
    """The program gets its batches."""

    def fail(*_: object) -> None:
        raise LookupError("ours")

    monkeypatch.setattr(fetch, "_keys", fail)
    with record() as recorded:
        came = [batch.tolist() for batch in DataLoader(Numbers(4), batch_size=2)]
    assert came == [[0, 1], [2, 3]]
    (off,) = [event for event in recorded.events if event["cat"] == OFF]
    assert (off["name"], off["args"]) == ("loader", {"reason": "LookupError: ours"})
    assert len(recorded.named("input_wait")) == 1
    assert "LookupError" in caplog.text
    expected.add("following a loader")


# ── who waits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_another_thread_fetches_is_no_wait_of_the_main_one() -> None:
    """It has a name of its own."""
    with record() as recorded:
        thread = threading.Thread(target=list, args=[DataLoader(Numbers(4), batch_size=2)])
        thread.start()
        thread.join()
    assert waits(recorded) == []
    assert waits(recorded, PREFETCH) == [(0, 0), (0, 1)]
    assert fetched(recorded) == [Fetched(0, 0, (0, 1)), Fetched(0, 1, (2, 3))]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_inside_a_dataset_is_not_waited_for_twice(workers: int) -> None:
    """Its waits lie inside the item, and its batches are not those of the loader outside."""
    data = DataLoader(Nested(), batch_size=2, num_workers=workers, multiprocessing_context="fork" if workers else None)
    recorded = record_epochs(data)
    assert waits(recorded) == [(0, 0)]
    assert fetched(recorded) == [Fetched(0, 0, (0, 1))]
    inner = recorded.named(PREFETCH)
    items = {(event["pid"], event["seq"]) for event in recorded.named("item")}
    assert len(inner) == 4
    assert {(event["pid"], event["parent"]) for event in inner} <= items


def test_the_first_wait_begins_the_first_step() -> None:
    """It belongs to the step that it is for."""
    recorded = record_epochs(DataLoader(Numbers(2)))
    assert {event["step"] for event in recorded.named("input_wait")} == {0}


def test_a_worker_joins_the_run_of_its_loader(tmp_path: Path) -> None:
    """Whatever its environment says: that of a fork server is as old as the server. Its own run it does not leave."""
    with record(dir=str(tmp_path)) as first:
        pass
    with record(dir=str(tmp_path)) as recorded:
        running = session.current()
        session.join(str(recorded.path))
        assert session.current() is running
        session.join(str(first.path))
        joined = session.current()
        assert joined is not None
        assert joined.path == first.path
        joined.finish()


# ── the start of an iteration ────────────────────────────────────────────────────────────────────────────────────────


def test_the_start_tells_what_the_loader_is() -> None:
    """Its length too, if asking for it is harmless."""
    data = DataLoader(Numbers(5), batch_size=2)
    recorded = record_epochs(data)
    (event,) = recorded.named("iter")
    assert event["args"] == {
        "workers": 0,
        "batch_size": 2,
        "dataset": "Numbers",
        "length": 3,
        "items": 5,
        "prefetch": None,
        "pin_memory": False,
        "persistent": False,
        "sampler": "SequentialSampler",
        "drop_last": False,
    }
    assert event["key"] == batch_key(hooks_number(data), 0, 0)


def hooks_number(data: Any) -> int:
    from sonde.hooks.torch import loader

    return loader.loader_number(data)


class Lengthless:
    """A batch sampler whose length nobody may ask for."""

    def __iter__(self) -> Iterator[list[int]]:
        yield [0, 1]

    def __len__(self) -> int:
        raise AssertionError("asked for the length")


def test_the_length_of_foreign_samplers_and_of_streams_is_not_asked_for() -> None:
    """It is not known then."""
    for data in (DataLoader(Numbers(5), batch_sampler=Lengthless()), DataLoader(Stream(2))):
        recorded = record_epochs(data)
        assert [event["args"]["length"] for event in recorded.named("iter")] == [None]


def test_the_number_of_samples_is_that_of_the_indices() -> None:
    """Whatever the batch is made into; of a stream it is the first dimension of the first tensor."""
    recorded = record_epochs(DataLoader(Numbers(4), batch_size=4, collate_fn=lambda items: "one text"))
    assert [event["value"] for event in recorded.named("samples")] == [4]
    collate = lambda items: {"name": ["x"], "values": (None, torch.zeros(7, 2))}  # noqa: E731
    recorded = record_epochs(DataLoader(Stream(4), batch_size=4, collate_fn=collate))
    assert [event["value"] for event in recorded.named("samples")] == [7]


def test_outside_of_the_chosen_steps_nothing_is_recorded_here() -> None:
    """Workers fetch ahead and do not know the step: they go on."""
    with record(steps="5:6") as recorded:
        list(DataLoader(Numbers(2)))
        list(DataLoader(Numbers(2), num_workers=1, multiprocessing_context="fork"))
    names = {event["name"] for event in recorded.events if event["cat"] == "probe"}
    assert names == {"fetch", "item"}


def test_values_are_the_same_with_and_without() -> None:
    """Shuffled by the same seed."""
    data = DataLoader(Numbers(50), batch_size=7, shuffle=True)

    def epoch() -> list[list[int]]:
        torch.manual_seed(3)
        return [batch.tolist() for batch in data]

    bare = epoch()
    with record():
        assert epoch() == bare


class Ready(torch.utils.data.Dataset[Any]):
    """Each item is a batch of five."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return torch.ones(5, 4), torch.ones(5, 1)


def _unpacked(items: list[Any]) -> Any:
    return items[0]


def test_an_item_that_is_a_batch_has_the_samples_of_that() -> None:
    """Its collate function only unpacks it; one image and its label are a single sample."""
    with record() as recorded:
        list(DataLoader(Ready(), collate_fn=_unpacked))
    assert [event["value"] for event in recorded.named("samples")] == [5, 5, 5]
    with record() as recorded:
        list(DataLoader(Subset(Ready(), [2, 0]), collate_fn=_unpacked))
    assert [event["value"] for event in recorded.named("samples")] == [5, 5]
    images = [(torch.ones(3, 8, 8), 1)] * 2
    with record() as recorded:
        list(DataLoader(images, collate_fn=_unpacked))  # a list is a dataset
    assert [event["value"] for event in recorded.named("samples")] == [1, 1]
