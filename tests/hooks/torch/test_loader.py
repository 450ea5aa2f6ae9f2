"""The loader: each delivered batch is told with the indices that its values come from."""

from __future__ import annotations

import gc
import os
import pickle
import random
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


from tests.hooks.torch.data import (  # noqa: E402
    Batched,
    Count,
    Deliveries,
    Stream,
    fail,
    read_fetches,
    thirds,
    write_fetches,
)

from sonde import guard, hooks  # noqa: E402
from sonde.hooks.torch import loader  # noqa: E402

BatchSampler = torch.utils.data.BatchSampler
DataLoader = torch.utils.data.DataLoader
RandomSampler = torch.utils.data.RandomSampler
Subset = torch.utils.data.Subset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # on a small machine

PLACES = [
    (torch.utils.data.DataLoader, "__iter__"),
    (torch.utils.data.DataLoader, "__len__"),
    (torch.utils.data.dataloader._BaseDataLoaderIter, "_next_index"),
    (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__"),
    (torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "_try_put_index"),
    (torch.utils.data._utils.fetch._BaseDatasetFetcher, "__init__"),
    (torch.utils.data._utils.fetch._MapDatasetFetcher, "fetch"),
    (torch.utils.data._utils.fetch._IterableDatasetFetcher, "fetch"),
    (torch.utils.data._utils.worker, "_worker_loop"),
]
ORIGINALS = [vars(owner)[name] for owner, name in PLACES]


@pytest.fixture
def leave() -> Iterator[list[Callable[[], None]]]:
    """What to undo at the end; then torch is as it was, and nothing of ours has failed."""
    before = guard.counts()
    undo: list[Callable[[], None]] = []
    yield undo
    for each in undo:
        each()
    assert [vars(owner)[name] for owner, name in PLACES] == ORIGINALS
    assert hooks.describe() == []
    assert guard.counts() == before


@pytest.fixture
def seen(leave: list[Callable[[], None]]) -> Deliveries:
    """A subscriber to delivered batches."""
    deliveries = Deliveries()
    leave.append(loader.next_batch.subscribe(deliveries))
    return deliveries


def check(seen: Deliveries, numbers: list[int]) -> None:
    """The values are those of the indices, and the numbers are these."""
    assert [tuple(data.tolist()) for data, _ in seen.rows] == [batch.indices for batch in seen.batches]
    assert [batch.number for batch in seen.batches] == numbers


# ── map-style datasets ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_indices_numbers_and_workers_of_shuffled_batches(workers: int, seen: Deliveries) -> None:
    """Forked workers, or none."""
    context = "fork" if workers else None
    data = DataLoader(Count(10), batch_size=3, shuffle=True, num_workers=workers, multiprocessing_context=context)
    assert sorted(value for batch in data for value in batch.tolist()) == list(range(10))
    check(seen, [0, 1, 2, 3])
    assert [batch.worker for batch in seen.batches] == [number % workers if workers else None for number in range(4)]
    assert seen.errors == [("StopIteration", None)]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_and_persist(
    context: str, seen: Deliveries, leave: list[Callable[[], None]], tmp_path: Path
) -> None:
    """What a worker knows of a batch is what the main process knows of it, also in the second round."""
    leave.append(loader.start_in_workers(write_fetches, str(tmp_path)))
    data = DataLoader(
        Count(10), batch_size=3, shuffle=True, num_workers=2, multiprocessing_context=context, persistent_workers=True
    )
    for _ in range(2):
        list(data)
    del data
    check(seen, [0, 1, 2, 3] * 2)
    assert [batch.round for batch in seen.batches] == [0] * 4 + [1] * 4
    fetches = read_fetches(tmp_path)
    assert sorted(fetch[1] for fetch in fetches) == sorted(seen.batches)
    assert all(values == list(batch.indices or ()) for _, batch, values, _ in fetches)
    assert len({pid for pid, *_ in fetches} | {os.getpid()}) == 3


def test_forked_workers_are_started_and_inherit(
    seen: Deliveries, leave: list[Callable[[], None]], tmp_path: Path
) -> None:
    """The starter is called in them too."""
    leave.append(loader.start_in_workers(write_fetches, str(tmp_path)))
    data = DataLoader(Count(12), batch_size=2, shuffle=True, num_workers=3, multiprocessing_context="fork")
    for _ in range(2):
        list(data)
    check(seen, [*range(6)] * 2)
    fetches = read_fetches(tmp_path)
    assert sorted(fetch[1] for fetch in fetches) == sorted(seen.batches)
    assert len({pid for pid, *_ in fetches}) == 6


def test_fetches_of_the_main_process_are_told_there(leave: list[Callable[[], None]], tmp_path: Path) -> None:
    """Without workers."""
    from tests.hooks.torch.data import Writing

    leave.append(loader.fetch.subscribe(Writing(str(tmp_path))))
    data = DataLoader(Count(5), batch_size=2)
    list(data)
    number = loader.loader_number(data)
    assert [(pid, batch, values) for pid, batch, values, _ in read_fetches(tmp_path)] == [
        (os.getpid(), loader.Batch(number, 0, (0, 1), None, 0), [0, 1]),
        (os.getpid(), loader.Batch(number, 1, (2, 3), None, 0), [2, 3]),
        (os.getpid(), loader.Batch(number, 2, (4,), None, 0), [4]),
    ]
    assert loader.fetching() is None


def test_batches_that_are_delivered_out_of_order(seen: Deliveries, tmp_path: Path) -> None:
    """The number is that of the sampler, not that of the delivery."""
    data = DataLoader(
        Count(16, tmp_path / "signal"), batch_size=2, num_workers=2, multiprocessing_context="fork", in_order=False
    )
    list(data)
    check(seen, [batch.number for batch in seen.batches if batch.number is not None])
    assert sorted(batch.number or 0 for batch in seen.batches) == list(range(8))
    assert seen.batches[0].number != 0


def test_a_batch_that_waits_for_an_earlier_one_keeps_its_number(seen: Deliveries, tmp_path: Path) -> None:
    """In order, with a slow worker."""
    list(DataLoader(Count(16, tmp_path / "signal"), batch_size=2, num_workers=2, multiprocessing_context="fork"))
    check(seen, list(range(8)))
    assert [batch.worker for batch in seen.batches] == [0, 1] * 4


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "sampler",
    [[[3, 1], [2], [7, 7, 7]], [(3, 1), (2,)], BatchSampler(RandomSampler(range(9)), 4, drop_last=False)],
    ids=["lists", "tuples", "random"],
)
def test_batch_samplers(sampler: Any, workers: int, seen: Deliveries) -> None:
    """Also plain lists of lists, and indices that come twice."""
    context = "fork" if workers else None
    list(DataLoader(Count(9), batch_sampler=sampler, num_workers=workers, multiprocessing_context=context))
    check(seen, list(range(len(sampler))))


def test_a_collate_function_of_the_user(seen: Deliveries) -> None:
    """What it makes of the items does not matter."""
    list(DataLoader(Count(6), batch_size=2, collate_fn=thirds, num_workers=2, multiprocessing_context="fork"))
    assert [(data.tolist(), batch.indices) for data, batch in seen.rows if batch] == [
        ([0, 3], (0, 1)), ([6, 9], (2, 3)), ([12, 15], (4, 5)),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_no_automatic_batches(workers: int, seen: Deliveries) -> None:
    """`batch_size=None`: each item is delivered alone."""
    list(
        DataLoader(Count(4), batch_size=None, num_workers=workers, multiprocessing_context="fork" if workers else None)
    )
    assert [(int(data), batch.indices) for data, batch in seen.rows if batch] == [(n, (n,)) for n in range(4)]


def test_a_sampler_of_batches_without_automatic_batches(seen: Deliveries) -> None:
    """The dataset gets whole lists then."""
    sampler: Any = BatchSampler(RandomSampler(range(9)), 4, drop_last=False)
    list(DataLoader(Count(9), batch_size=None, sampler=sampler))
    check(seen, [0, 1, 2])


def test_datasets_that_fetch_many_items_at_once(seen: Deliveries) -> None:
    """`__getitems__`."""
    list(DataLoader(Batched(7), batch_size=3, shuffle=True))
    check(seen, [0, 1, 2])


def test_indices_of_a_subset_lead_to_those_of_its_dataset(seen: Deliveries) -> None:
    """Through a subset of a subset too."""
    inner = Subset(Count(20), list(range(19, 9, -1)))
    subset = Subset(inner, [1, 3, 5, 7])
    list(DataLoader(subset, batch_size=2, shuffle=True))
    for values, batch in seen.rows:
        assert batch is not None
        assert batch.indices is not None
        assert values.tolist() == [loader.original_index(subset, index) for index in batch.indices]


@pytest.mark.parametrize("workers", [0, 2])
def test_break_and_restart(workers: int, seen: Deliveries) -> None:
    """A new round starts at batch 0, and what was under way in the old one is forgotten."""
    data = DataLoader(
        Count(20), batch_size=2, shuffle=True, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    for _ in range(2):
        for position, _batch in enumerate(data):
            if position == 2:
                break
    check(seen, [0, 1, 2] * 2)
    assert [batch.round for batch in seen.batches] == [0] * 3 + [1] * 3


def test_break_and_restart_with_persistent_workers(seen: Deliveries) -> None:
    """The iterator is the same one; batches of the old round never count as delivered."""
    data = DataLoader(
        Count(20), batch_size=2, shuffle=True, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    for _ in range(3):
        for position, _batch in enumerate(data):
            if position == 1:
                break
    list(data)
    check(seen, [0, 1] * 3 + list(range(10)))
    assert [batch.round for batch in seen.batches] == [0, 0, 1, 1, 2, 2] + [3] * 10


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_names_the_batch_that_failed(workers: int, seen: Deliveries) -> None:
    """And passes as it is."""
    data = DataLoader(
        Count(8, bad=3), batch_size=2, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    iterator = iter(data)
    next(iterator)
    with pytest.raises(ValueError, match="item 3 is bad"):
        next(iterator)
    number = loader.loader_number(data)
    assert seen.errors == [("ValueError", loader.Batch(number, 1, (2, 3), 1 if workers else None, 0))]
    if workers:  # the loader goes on after it
        assert next(iterator).tolist() == [4, 5]
        check(seen, [0, 2])


def test_loaders_inside_each_other_are_told_apart(seen: Deliveries) -> None:
    """Training and evaluation."""
    train, evaluate = DataLoader(Count(4), batch_size=2), DataLoader(Count(100), batch_size=50)
    for _ in train:
        for _ in evaluate:
            pass
    inner, outer = loader.loader_number(evaluate), loader.loader_number(train)
    assert [(batch.loader, batch.number, batch.round) for batch in seen.batches] == [
        (outer, 0, 0), (inner, 0, 0), (inner, 1, 0), (outer, 1, 0), (inner, 0, 1), (inner, 1, 1),
    ]  # fmt: skip


def test_an_iterator_that_runs_already_is_told_as_far_as_it_can_be(leave: list[Callable[[], None]]) -> None:
    """Numbers and workers at once, indices of what was not yet under way."""
    data = DataLoader(Count(14), batch_size=2, num_workers=2, multiprocessing_context="fork")
    iterator = iter(data)
    next(iterator)
    seen = Deliveries()
    leave.append(loader.next_batch.subscribe(seen))
    list(iterator)
    assert [(batch.number, batch.worker) for batch in seen.batches] == [(n, n % 2) for n in range(1, 7)]
    assert [batch.indices for batch in seen.batches] == [None] * 4 + [(10, 11), (12, 13)]


def test_a_sampler_whose_lists_can_be_read_once_is_not_read_by_us(seen: Deliveries) -> None:
    """The indices are not known then, and the program gets them all."""

    class Once:
        def __iter__(self) -> Iterator[Any]:
            yield from (iter([1, 2]), iter([3]))

        def __len__(self) -> int:
            return 2

    sampler: Any = Once()
    assert [batch.tolist() for batch in DataLoader(Count(5), batch_sampler=sampler)] == [[1, 2], [3]]
    assert [(batch.number, batch.indices) for batch in seen.batches] == [(0, None), (1, None)]


@pytest.mark.parametrize(
    ("asked", "batched", "indices"),
    [
        ([1, 2], True, (1, 2)),
        ((1, "a"), True, (1, "a")),
        (range(2), True, (0, 1)),
        (torch.tensor([3, 4]), True, (3, 4)),
        ([torch.tensor(5)], True, (5,)),
        (7, False, (7,)),
        ("key", False, ("key",)),
        ((1, 2), False, ((1, 2),)),
        ([1, 2], False, (1, 2)),
        (torch.tensor(6), False, (6,)),
        (iter([1]), True, None),
    ],
)
def test_what_samplers_give_becomes_plain_indices(asked: Any, batched: bool, indices: Any) -> None:
    """Numbers of any kind are plain numbers, keys stay what they are."""
    assert loader.plain(asked, batched) == indices


# ── iterable datasets ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [None, 2])
def test_iterable_datasets_have_ordinals(size: int | None, seen: Deliveries) -> None:
    """They count the items from 0 in each round."""
    data = DataLoader(Stream((4,)), batch_size=size)
    for _ in range(2):
        list(data)
    width = size or 1
    batches = [tuple(range(start, start + width)) for start in range(0, 4, width)]
    assert [batch.indices for batch in seen.batches] == batches * 2
    assert [batch.number for batch in seen.batches] == [*range(len(batches))] * 2


def test_streams_of_several_workers_have_ordinals_each(seen: Deliveries, leave: Any, tmp_path: Path) -> None:
    """One of them ends early; nothing is told of the batches that it could not make."""
    leave.append(loader.start_in_workers(write_fetches, str(tmp_path)))
    data = DataLoader(Stream((6, 2)), batch_size=2, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        list(data)
    assert len(seen.rows) == 8
    for values, batch in seen.rows:
        assert batch is not None
        assert batch.indices is not None
        assert values.tolist() == [100 * (batch.worker or 0) + ordinal for ordinal in batch.indices]
    assert sorted(row[1] for row in read_fetches(tmp_path) if row[3] is None) == sorted(seen.batches)


# ── nothing is changed, nothing stays ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.unsanitized("forked workers")
def test_batches_are_the_same_with_and_without_subscribers(workers: int, leave: list[Callable[[], None]]) -> None:
    """Seeded shuffles too: no random number is used up."""

    def values() -> list[Any]:
        torch.manual_seed(3)
        random.seed(3)
        data = DataLoader(
            Count(11), batch_size=3, shuffle=True, num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )  # fmt: skip
        return [batch.tolist() for _ in range(2) for batch in data] + [torch.rand(1).item(), random.random()]

    expected = values()
    points = (loader.next_batch, loader.loader_iter, loader.fetch, loader.next_index)
    leave.extend(point.subscribe(Deliveries()) for point in points)
    assert values() == expected


def test_loader_and_iterator_carry_nothing_of_ours(seen: Deliveries) -> None:
    """A loader can be pickled, and read without us."""
    data = DataLoader(Count(4), batch_size=2)
    names = set(vars(data))
    iterator = iter(data)
    plain_names = set(vars(iterator))
    list(iterator)
    assert (set(vars(data)), set(vars(iterator))) == (names, plain_names)
    assert b"sonde" not in pickle.dumps(data)


def test_loaders_and_iterators_are_not_kept_alive(seen: Deliveries) -> None:
    """Their workers end when the program lets go."""
    data = DataLoader(Count(4), batch_size=2)
    iterator = iter(data)
    list(iterator)
    gone = [weakref.ref(data), weakref.ref(iterator)]
    del data, iterator
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_a_replaced_sampler_decides_what_is_loaded(seen: Deliveries, leave: list[Callable[[], None]]) -> None:
    """One batch of four, and an end."""
    left = [1]

    def first_four(original: Callable[[Any], Any], iterator: Any) -> Any:
        if not left:
            raise StopIteration
        left.pop()
        return original(iterator)[:4]

    leave.append(loader.next_index.replace(first_four))
    leave.append(loader.loader_len.replace(lambda original, data: 1))
    data = DataLoader(Count(100), batch_size=32, shuffle=True, num_workers=2, multiprocessing_context="fork")
    assert len(data) == 1
    assert [len(batch) for batch in data] == [4]
    check(seen, [0])


def test_a_starter_that_fails_leaves_the_worker_alone(leave: list[Callable[[], None]]) -> None:
    """The data arrives as before."""
    leave.append(loader.start_in_workers(fail))
    leave.append(loader.start_in_workers(lambda: None))  # a worker finds no such name
    data = DataLoader(Count(4), batch_size=2, num_workers=1, multiprocessing_context="fork")
    assert [batch.tolist() for batch in data] == [[0, 1], [2, 3]]


def test_a_starter_that_has_left_is_called_no_more(leave: list[Callable[[], None]], tmp_path: Path) -> None:
    """And leaving twice is harmless."""
    end = loader.start_in_workers(write_fetches, str(tmp_path))
    end()
    end()
    list(DataLoader(Count(4), batch_size=2, num_workers=1, multiprocessing_context="fork"))
    assert read_fetches(tmp_path) == []


LATE = """
import sys
from sonde.hooks.torch import backward, loader, module, optimizer, transfer
assert "torch" not in sys.modules and "numpy" not in sys.modules
class Told:
    def __init__(self): self.calls = 0
    def before(self, args, kwargs): self.calls += 1
    def after(self, token, result, error): pass
points = [loader.next_batch, module.module_call, backward.backward, optimizer.optimizer_step, transfer.tensor_to]
told = [Told() for _ in points]
leave = [point.subscribe(one) for point, one in zip(points, told)]
assert "torch" not in sys.modules
import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader([torch.ones(1)] * 4, batch_size=2):
    model(batch.to("cpu")).sum().backward()
    optimizer.step()
for each in leave: each()
from sonde import guard, hooks
assert hooks.describe() == [] and not hasattr(torch.nn.Module.__call__, "__wrapped__")
print([one.calls for one in told], guard.counts())
"""


def test_a_program_that_imports_torch_later_is_followed_from_then_on() -> None:
    """Subscribing alone loads neither torch nor NumPy."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("[3, 2, 2, 2, 2] {}\n", 0), done.stderr


# ── fast path ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("told", [False, True], ids=["nobody is told", "with a subscriber"])
@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_lane_the_batch_is_known_when_it_is_there(
    workers: int, told: bool, leave: list[Callable[[], None]]
) -> None:
    """It is the one that a subscriber is told of."""
    settled: list[loader.Batch | None] = []

    def fast(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(iterator: Any) -> Any:
            data = original(iterator)
            settled.append(loader.end_fetch(iterator))
            return data

        return wait

    deliveries = Deliveries()
    leave.append(loader.next_batch.fast_path(fast))
    if told:
        leave.append(loader.next_batch.subscribe(deliveries))
    context = "fork" if workers else None
    data = DataLoader(Count(6), batch_size=2, shuffle=True, num_workers=workers, multiprocessing_context=context)
    came = [tuple(batch.tolist()) for batch in data]
    assert [batch.indices for batch in settled if batch] == came
    assert [batch.number for batch in settled if batch] == [0, 1, 2]
    assert not told or deliveries.batches == settled


def test_outside_of_a_lane_nothing_is_settled(leave: list[Callable[[], None]]) -> None:
    """There is no batch on its way then."""
    leave.append(loader.next_batch.fast_path(lambda original: original))
    iterator = iter(DataLoader(Count(2)))
    next(iterator)
    assert loader.end_fetch(iterator) is None


def test_the_loader_whose_iteration_begins_is_known(leave: list[Callable[[], None]]) -> None:
    """With its round; before and after there is none."""
    seen: list[tuple[int, int] | None] = []

    class Starts:
        def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.append(loader.starting())

        def after(self, token: None, result: Any, error: BaseException | None) -> None:
            pass

    leave.append(loader.loader_iter.subscribe(Starts()))
    data = DataLoader(Count(2))
    for _ in range(2):
        iter(data)
    assert seen == [(loader.loader_number(data), 0), (loader.loader_number(data), 1)]
    assert loader.starting() is None


def test_the_queue_of_a_worker_notes_the_number_of_its_task() -> None:
    """Messages to the worker have none. For everything else it is the queue itself."""
    import queue

    inner: queue.Queue[Any] = queue.Queue()
    tasks = loader.Tasks(inner)
    for task in ((7, [1, 2]), None):
        inner.put(task)
        assert tasks.get(timeout=1) == task
        assert loader._worker.number == (None if task is None else 7)
    assert tasks.empty()
    with pytest.raises(queue.Empty):
        tasks.get(timeout=0.01)
