"""The probe of loaders: each batch with the items that it was made of."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import (  # noqa: E402
    Anew,
    Fetched,
    Numbers,
    Stream,
    Together,
    Words,
    fetched,
    record_epochs,
    shape,
    waits,
)

import sonde  # noqa: E402
from sonde.hooks.torch import loader as hooks  # noqa: E402
from sonde.probes.loader import listeners  # noqa: E402
from sonde.probes.loader.fetch import MOST_INDICES  # noqa: E402
from sonde.store.probe import read_batch_key  # noqa: E402
from sonde.testing import record  # noqa: E402

DataLoader = torch.utils.data.DataLoader
BatchSampler = torch.utils.data.BatchSampler
Subset = torch.utils.data.Subset

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left"),
]


# ── datasets with indices ────────────────────────────────────────────────────────────────────────────────────────────


def test_without_workers_all_lies_in_the_wait() -> None:
    """The wait holds the fetch, the fetch its items; the request that found nothing is the end of the loop."""
    recorded = record_epochs(DataLoader(Numbers(3), batch_size=2))
    batch = [("input_wait", None), ("fetch", "input_wait"), ("item", "fetch"), ("item", "fetch"), ("samples", None)]
    last = [("input_wait", None), ("fetch", "input_wait"), ("item", "fetch"), ("samples", None)]
    assert shape(recorded) == [("iter", None), *batch, *last, ("iter_end", None)]
    assert [event["value"] for event in recorded.named("samples")] == [2, 1]
    assert fetched(recorded) == [Fetched(0, 0, (0, 1)), Fetched(0, 1, (2,))]
    assert waits(recorded) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("size", [2, None])
def test_what_collates_can_be_surrounded(size: int | None) -> None:
    """It is put back after each batch, also of one that fails, and when nobody wants it any more."""
    made: list[Any] = []

    def around(collate: Any) -> Any:
        def call(samples: Any) -> Any:
            made.append(samples)
            return collate(samples)

        return call

    def fail(samples: Any) -> Any:
        raise ArithmeticError(samples)

    with record():
        leave = listeners.around_collate(around)
        batches = iter(DataLoader(Numbers(4), batch_size=size, collate_fn=len if size else str))
        assert [next(batches), next(batches)] == ([2, 2] if size else ["tensor(0)", "tensor(1)"])
        assert batches._dataset_fetcher.collate_fn in (len, str)
        broken = iter(DataLoader(Numbers(4), batch_size=size, collate_fn=fail))
        with pytest.raises(ArithmeticError):
            next(broken)
        assert broken._dataset_fetcher.collate_fn is fail
        leave()
        list(DataLoader(Numbers(4), batch_size=size))
    assert len(made) == 3


@pytest.mark.parametrize(
    ("context", "workers", "rounds"), [("fork", 1, 2), ("fork", 8, 2), ("spawn", 2, 1), ("forkserver", 1, 2)]
)
def test_workers_record_the_items_that_are_delivered(context: str, workers: int, rounds: int) -> None:
    """Shuffled, mostly twice: what workers say they made is what came."""
    data = DataLoader(Numbers(20), batch_size=2, shuffle=True, num_workers=workers, multiprocessing_context=context)
    came = []
    with record() as recorded:
        for round in range(rounds):
            came += [Fetched(round, number, tuple(batch.tolist())) for number, batch in enumerate(data)]
    assert fetched(recorded) == came
    assert waits(recorded) == [(batch.round, batch.number) for batch in came]
    makers = {event["pid"] for event in recorded.named("fetch")}
    assert len(makers) == rounds * workers
    assert {event["pid"] for event in recorded.named("input_wait")}.isdisjoint(makers)


def record_something() -> None:
    """Called in a worker, before torch lets it know that it is one."""
    sonde.mark("early")


@pytest.mark.parametrize("first", [True, False])
def test_a_worker_that_records_before_its_loop_is_a_worker(first: bool) -> None:
    """A garbage collection can come at any time: before Sonde knows of the worker, or after that."""
    starter = record_something
    leave = hooks.start_in_workers(starter) if first else None
    with record() as recorded:
        leave = leave or hooks.start_in_workers(starter)
        list(DataLoader(Numbers(4), batch_size=2, num_workers=2, multiprocessing_context="fork"))
        leave()
        with sonde.open_run(recorded.path) as run:
            roles = run.sql("SELECT role, worker FROM processes WHERE role <> 'main' ORDER BY worker").fetchall()
    assert roles == [("worker", 0), ("worker", 1)]
    assert len(recorded.named("early")) == 2


class Asking(Numbers):
    """Its items are the numbers of the batches that they are made for."""

    def __getitem__(self, index: int) -> Any:
        batch = hooks.fetching()
        return None if batch is None else (batch.number, batch.worker, batch.indices)


@pytest.mark.parametrize("workers", [0, 1])
def test_code_of_a_dataset_can_ask_for_which_batch_it_runs(workers: int) -> None:
    """Also where a batch takes the fast path."""
    context = "fork" if workers else None
    data = DataLoader(Asking(4), batch_size=2, collate_fn=list, num_workers=workers, multiprocessing_context=context)
    with record():
        told = list(data)
    who = 0 if workers else None
    assert told == [[(0, who, (0, 1))] * 2, [(1, who, (2, 3))] * 2]
    assert hooks.fetching() is None


def test_a_worker_may_change_its_mind_about_who_collates() -> None:
    """Batches take the fast path until something is called around what collates, and again afterwards."""
    turns = iter(range(3))

    def collate(items: list[Any]) -> Any:
        turn = next(turns)
        if turn == 0:
            leave.append(listeners.around_collate(lambda inner: lambda items: ("around", inner(items))))
        if turn == 1:
            leave.pop()()
        return items

    leave: list[Any] = []
    data = DataLoader(Numbers(6), batch_size=2, collate_fn=collate, num_workers=1, multiprocessing_context="fork")
    with record() as recorded:
        told = list(data)
    assert [type(one) for one in told] == [list, tuple, list]
    assert fetched(recorded) == [Fetched(0, number, (2 * number, 2 * number + 1)) for number in range(3)]


def test_workers_do_not_claim_to_know_the_step() -> None:
    """A forked worker would inherit that of its parent."""
    with record() as recorded:
        from sonde.events import core

        core.set_context(41, 7)
        list(DataLoader(Numbers(4), batch_size=2, num_workers=1, multiprocessing_context="fork"))
        core.set_context(-1, -1)
    assert {(event["step"], event["epoch"]) for event in recorded.named("item")} == {(None, None)}
    assert {(event["step"], event["epoch"]) for event in recorded.named("input_wait")} == {(41, 7)}


def test_persistent_workers_know_the_round() -> None:
    """The same processes work for all of them."""
    data = DataLoader(Numbers(4), batch_size=2, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    recorded = record_epochs(data, 3)
    assert fetched(recorded) == [Fetched(r, n, (2 * n, 2 * n + 1)) for r in range(3) for n in range(2)]
    assert len({event["pid"] for event in recorded.named("fetch")}) == 2
    assert [read_batch_key(event["key"])[1:] for event in recorded.named("iter")] == [(0, 0), (1, 0), (2, 0)]


def test_batches_out_of_order_keep_their_numbers() -> None:
    """What is waited for is what comes."""
    data = DataLoader(Numbers(12), batch_size=2, num_workers=3, multiprocessing_context="fork", in_order=False)
    with record() as recorded:
        came = [int(batch[0]) // 2 for batch in data]
    assert [number for _, number in waits(recorded)] == came
    assert fetched(recorded) == [Fetched(0, number, (2 * number, 2 * number + 1)) for number in range(6)]


def test_a_subset_names_the_items_of_its_dataset() -> None:
    """One by one, though the subset makes its batches itself."""
    recorded = record_epochs(DataLoader(Subset(Numbers(90), [70, 80, 60]), batch_size=2))
    assert fetched(recorded) == [Fetched(0, 0, (70, 80)), Fetched(0, 1, (60,))]


@pytest.mark.parametrize(
    "dataset",
    [Together(90), Subset(Together(90), range(90)), Subset(Subset(Numbers(90), range(90)), range(90))],
    ids=["getitems", "subset of it", "subset of a subset"],
)
def test_items_that_are_made_together_are_listed_with_their_batch(dataset: Any) -> None:
    """And the dataset gets the plain list that it would get without us."""
    recorded = record_epochs(DataLoader(dataset, batch_sampler=[[70, 80], [60]]))
    assert [event["args"] for event in recorded.named("fetch")] == [
        {"indices": [70, 80], "count": 2}, {"indices": [60], "count": 1},
    ]  # fmt: skip
    assert recorded.named("item") == []


def test_of_a_huge_batch_that_is_made_together_the_first_items_are_listed() -> None:
    """The count is that of all."""
    recorded = record_epochs(DataLoader(Together(1000), batch_size=1000))
    (fetch,) = recorded.named("fetch")
    assert fetch["args"] == {"indices": list(range(MOST_INDICES)), "count": 1000}


def test_items_without_a_number_are_told_by_their_key() -> None:
    """Their number is the place in the batch then."""
    recorded = record_epochs(DataLoader(Words(), batch_sampler=[["a", "bcd"], ["ef"]]))
    assert [(event["key"], event["args"]) for event in recorded.named("item")] == [
        (0, {"key": "a"}), (1, {"key": "bcd"}), (0, {"key": "ef"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "batch", [(3, 1), torch.tensor([3, 1]), torch.tensor([3, 1]).numpy()], ids=["tuple", "tensor", "array"]
)
def test_whatever_holds_the_indices(batch: Any) -> None:
    """A batch sampler may give other things than lists."""
    recorded = record_epochs(DataLoader(Numbers(5), batch_sampler=[batch]))
    assert fetched(recorded) == [Fetched(0, 0, (3, 1))]


def test_without_automatic_batches_the_item_ends_before_it_is_converted() -> None:
    """`batch_size=None`: one item, and then what the user does with it."""
    ended = []

    def convert(item: Any) -> Any:
        ended.append([event["open"] for event in recorded.named("item")][-1])
        return item

    with record() as recorded:
        for _ in DataLoader(Numbers(2), batch_size=None, collate_fn=convert):
            pass
    assert ended == [False, False]
    assert fetched(recorded) == [Fetched(0, 0, (0,)), Fetched(0, 1, (1,))]


def test_a_sampler_of_batches_without_automatic_batches_lists_them() -> None:
    """The dataset gets a whole list as one key."""
    sampler: Any = BatchSampler(range(4), 3, drop_last=False)
    recorded = record_epochs(DataLoader(Numbers(4), batch_size=None, sampler=sampler))
    assert [event["args"]["indices"] for event in recorded.named("fetch")] == [[0, 1, 2], [3]]
    assert [event["value"] for event in recorded.named("samples")] == [3, 1]


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("drop_last", [False, True])
def test_items_of_a_stream_are_numbered(drop_last: bool) -> None:
    """The request that finds the end is no item. A last batch that is dropped was made all the same."""
    recorded = record_epochs(DataLoader(Stream(5), batch_size=2, drop_last=drop_last), 2)
    assert fetched(recorded) == [
        Fetched(round, number, items) for round in (0, 1) for number, items in enumerate([(0, 1), (2, 3), (4,)])
    ]
    assert [event["error"] for event in recorded.named("fetch")] == [False, False, drop_last] * 2
    assert [event["value"] for event in recorded.named("samples")] == ([2, 2] if drop_last else [2, 2, 1]) * 2


def test_a_stream_that_fills_its_last_batch_has_no_empty_one() -> None:
    """The fetch that finds nothing is no event."""
    recorded = record_epochs(DataLoader(Stream(4), batch_size=2))
    assert fetched(recorded) == [Fetched(0, 0, (0, 1)), Fetched(0, 1, (2, 3))]
    assert waits(recorded) == [(0, 0), (0, 1)]


def test_streams_in_workers_have_their_own_ordinals() -> None:
    """As many as each of them has."""
    recorded = record_epochs(DataLoader(Stream(3, 1), batch_size=2, num_workers=2, multiprocessing_context="fork"))
    assert fetched(recorded) == [Fetched(0, 0, (0, 1)), Fetched(0, 1, (0,)), Fetched(0, 2, (2,))]


def test_a_stream_without_automatic_batches() -> None:
    """One item each."""
    recorded = record_epochs(DataLoader(Stream(2), batch_size=None))
    assert fetched(recorded) == [Fetched(0, 0, (0,)), Fetched(0, 1, (1,))]


@pytest.mark.parametrize("size", [2, None])
def test_a_stream_that_is_its_own_iterator_does_not_begin_anew(size: int | None) -> None:
    """It is asked for an iterator once in a round, as by torch alone, and gives the same."""
    loader = DataLoader(Anew(7), batch_size=size)
    expected = [batch.tolist() for batch in loader]
    with record():
        for _ in range(2):
            assert [batch.tolist() for batch in islice(loader, 20)] == expected


def test_the_iterator_of_a_stream_is_put_back() -> None:
    """After each fetch torch has its own again."""
    data = DataLoader(Stream(4), batch_size=2)
    with record():
        iterator = iter(data)
        own = iterator._dataset_fetcher.dataset_iter
        next(iterator)
        assert iterator._dataset_fetcher.dataset_iter is own


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_marks_its_item_its_fetch_and_its_wait(workers: int) -> None:
    """And reaches the program as ever."""
    context = "fork" if workers else None
    data = DataLoader(Numbers(4, bad=3), batch_size=2, num_workers=workers, multiprocessing_context=context)
    with record() as recorded, pytest.raises(ValueError, match="item 3 is bad"):
        list(data)
    bad = [event for event in recorded.events if event["error"]]
    assert sorted(event["name"] for event in bad) == ["fetch", "input_wait", "item"]
    assert {event["name"]: event["key"] for event in bad}["item"] == 3
    assert {read_batch_key(event["key"]).number for event in bad if event["name"] != "item"} == {1}
    assert {event["args"]["error"] for event in bad} == {"ValueError"}
    assert not any(event["open"] for event in recorded.events if event["cat"] == "probe")


def test_an_exception_without_automatic_batches_marks_the_item() -> None:
    """There is no list to watch then."""
    with record() as recorded, pytest.raises(ValueError, match="item 0 is bad"):
        list(DataLoader(Numbers(2, bad=0), batch_size=None))
    assert [(event["key"], event["error"]) for event in recorded.named("item")] == [(0, True)]


def test_a_broken_stream_marks_the_item() -> None:
    """It raises while the next one is made."""
    with record() as recorded, pytest.raises(ValueError, match="broken"):
        list(DataLoader(Stream(2, fail=True), batch_size=2))
    assert [(event["key"], event["error"]) for event in recorded.named("item")] == [(0, False), (1, True)]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_in_collate_marks_no_item(workers: int) -> None:
    """The items were made."""

    def collate(items: list[Any]) -> Any:
        raise RuntimeError("cannot be stacked")

    context = "fork" if workers else None
    data = DataLoader(
        Numbers(2), batch_size=2, collate_fn=collate, num_workers=workers, multiprocessing_context=context
    )
    with record() as recorded, pytest.raises(RuntimeError, match="stacked"):
        list(data)
    assert [event["error"] for event in recorded.named("item")] == [False, False]
    assert [event["error"] for event in recorded.named("fetch")] == [True]
