"""The fast path of plain batches: what is recorded on it is what is recorded without it, and the program notices neither."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.data import KINDS, Anew, Nested, Numbers, Rows, Stream, Together, Words, fetched, shape, waits  # noqa: E402
from tests.probes.training import model, sgd, train  # noqa: E402

from sonde import open_run  # noqa: E402
from sonde.hooks.torch import loader as hooks  # noqa: E402
from sonde.hooks.torch.status import native  # noqa: E402
from sonde.probes.loader import listeners as probe  # noqa: E402
from sonde.probes.loader.listeners import Failed, FailureListener  # noqa: E402
from sonde.probes.process import sampler  # noqa: E402
from sonde.store.probe import ITER_END  # noqa: E402
from sonde.testing import Recorded, record  # noqa: E402

data = torch.utils.data
DataLoader, Subset = data.DataLoader, data.Subset

pytestmark = [
    pytest.mark.skipif(native is None, reason="there is none without C"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a small machine
    pytest.mark.usefixtures("nothing_left"),
]


def python_frames(call: Callable[[], Any]) -> list[str]:
    """The functions of ours that this call runs, but for looks at the process: these are due after some time, busy as a host may be."""
    seen: list[str] = []
    looking = False

    def note(frame: Any, event: str, _arg: object) -> None:
        nonlocal looking
        if frame.f_code is sampler.tick.__code__:
            looking = event == "call"
        elif event == "call" and not looking and frame.f_globals.get("__name__", "").startswith("sonde."):
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def tables(recorded: Recorded) -> tuple[Any, ...]:
    sizes = [event["value"] for event in recorded.named("samples")]
    return shape(recorded), fetched(recorded), waits(recorded), waits(recorded, ITER_END), sizes


def entries(recorded: Recorded) -> list[Any]:
    """What the ledger says; loaders of a process have other numbers each time."""
    with open_run(recorded.path) as run:
        return run.sql("SELECT batch, worker, size, indices FROM batches ORDER BY ALL").fetchall()


class Pairs:
    """Gives batches as something else than lists of numbers."""

    def __init__(self, kind: Callable[[list[int]], Any]) -> None:
        self.kind = kind

    def __iter__(self) -> Any:
        return (self.kind([place, place + 5]) for place in range(5))

    def __len__(self) -> int:
        return 5


LOADERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: DataLoader(Numbers(10), batch_size=3),
    "shuffled": lambda: DataLoader(Numbers(10), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1)),
    "subset": lambda: DataLoader(Subset(Numbers(30), [9, 20, 1, 4, 7, 28]), batch_size=2),
    "subset of a subset": lambda: DataLoader(Subset(Subset(Numbers(30), range(5, 20)), [3, 1, 2, 0]), batch_size=2),
    "whole batches": lambda: DataLoader(Together(10), batch_size=3),
    "large numbers": lambda: DataLoader(Numbers(2**40), batch_sampler=[[1, 2**17], [2**33, 5], [2**39, 2], [7, 8]]),
    "tuples": lambda: DataLoader(Numbers(10), batch_sampler=Pairs(tuple)),
    "tensors": lambda: DataLoader(Numbers(10), batch_sampler=Pairs(torch.tensor)),
    "one by one": lambda: DataLoader(Numbers(4), batch_size=None),
    "stream": lambda: DataLoader(Stream(7), batch_size=2),
    "nested": lambda: DataLoader(Nested(), batch_sampler=[[0], [1], [0], [1]]),
    "workers": lambda: DataLoader(Numbers(20), batch_size=3, num_workers=2, multiprocessing_context="fork"),
    "subset, workers": lambda: DataLoader(Subset(Numbers(30), range(20, 0, -1)), batch_size=3, num_workers=1),
    "stream, workers": lambda: DataLoader(Stream(8, 8), batch_size=2, num_workers=2),
    "whole batches, workers": lambda: DataLoader(Together(10), batch_size=3, num_workers=2),
    "whole batches of a subset": lambda: DataLoader(Subset(Together(30), [9, 20, 1, 4, 7, 28]), batch_size=2),
    "many whole batches": lambda: DataLoader(Together(900), batch_size=300),
    "one by one of a subset": lambda: DataLoader(Subset(Numbers(30), [9, 20, 1, 4]), batch_size=None),
    "one by one, workers": lambda: DataLoader(Numbers(6), batch_size=None, num_workers=2),
    "words, one by one": lambda: DataLoader(Words(), batch_size=None, sampler=["a", "bb", "ccc", "dddd"]),
    "lists, one by one": lambda: DataLoader(Numbers(10), batch_size=None, sampler=[[1, 2], [3, 4], [5, 6], [7, 8]]),
    "stream, one by one": lambda: DataLoader(Stream(5), batch_size=None),
    "stream, one by one, workers": lambda: DataLoader(Stream(4, 5), batch_size=None, num_workers=2),
    "stream, only whole batches": lambda: DataLoader(Stream(7), batch_size=2, drop_last=True),
    "stream, its own collate": lambda: DataLoader(Stream(7), batch_size=2, collate_fn=list),
    "stream that is its own iterator": lambda: DataLoader(Anew(7), batch_size=2),
    "the same, one by one": lambda: DataLoader(Anew(5), batch_size=None),
    "the same, workers": lambda: DataLoader(Anew(8, 8), batch_size=2, num_workers=2),
    "empty stream": lambda: DataLoader(Stream(0), batch_size=2),
    **{f"rows, {kind}": partial(DataLoader, Rows(kind), batch_size=None) for kind in KINDS},
}


def result(batch: Any) -> Any:
    return batch.tolist() if hasattr(batch, "tolist") else repr(batch)


@pytest.mark.parametrize("name", LOADERS)
def test_both_ways_record_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds over all kinds of loaders: the same spans, keys, sizes and entries in the ledger, the same data."""
    found = []
    for slow in (False, True):
        if slow:
            monkeypatch.setattr(hooks, "native", None)
        loader = LOADERS[name]()
        with record(dir=tmp_path) as recorded:
            came = [result(batch) for _ in range(2) for batch in islice(loader, 40)]
        spans = tables(recorded) if not loader.num_workers else tables(recorded)[1:]  # workers are in no order
        found.append((came, spans, entries(recorded)))
    assert found[0] == found[1]


FAST: dict[str, Callable[[], Any]] = {
    "batches": lambda: DataLoader(Numbers(40), batch_size=2, shuffle=True),
    "workers": lambda: DataLoader(Numbers(40), batch_size=2, shuffle=True, num_workers=2),
    "one by one": lambda: DataLoader(Rows("tuple", 12), batch_size=None),
    "stream": lambda: DataLoader(Stream(40), batch_size=2),
    "stream, one by one": lambda: DataLoader(Stream(40), batch_size=None),
    "stream, workers": lambda: DataLoader(Stream(40, 40), batch_size=2, num_workers=2),
}


@pytest.mark.parametrize("name", FAST)
def test_a_plain_batch_runs_no_python_of_ours_but_the_list_of_its_items(name: str) -> None:
    """From the second batch of a round on, but for what is done now and then."""
    with record() as recorded:
        batches = iter(FAST[name]())
        next(batches), next(batches)
        seen = [python_frames(lambda: next(batches)) for _ in range(9)]
    assert min(seen, key=len) in ([], ["__iter__"])
    assert waits(recorded) == [(0, number) for number in range(11)]


def test_a_plain_step_runs_no_python_of_ours() -> None:
    """Neither for its phases nor for its learning rate, but for what is done now and then."""
    with record() as recorded:
        net = model()
        optimizer = sgd(net)
        train(net, optimizer, 5)
        seen = [python_frames(partial(train, net, optimizer, 1)) for _ in range(9)]
    assert min(seen, key=len) == []
    assert len(recorded.named("update")) == 14


def test_loaders_that_take_turns_are_told_apart() -> None:
    """More of them than are remembered at a time."""
    with record() as recorded:
        loaders = [iter(DataLoader(Numbers(10 * place + 6), batch_size=2)) for place in range(6)]
        for _ in range(3):
            for one in loaders:
                next(one)
    assert waits(recorded) == [(0, number) for number in (0, 1, 2) for _ in loaders]
    assert [len(one.items) for one in fetched(recorded)] == [2] * 18


def test_an_item_that_raises_is_blamed() -> None:
    """The exception is the program's own, and the wait ends with it."""
    failed: list[Failed] = []
    unseen: list[tuple[Any, Any, BaseException]] = []

    class Told(FailureListener):
        def unmade(self, one: Failed) -> None:
            failed.append(one)

        def unseen(self, batch: Any, key: int | None, error: BaseException) -> None:
            unseen.append((batch, key, error))

    with record() as recorded:
        leave = probe.at_failure(Told())
        batches = iter(DataLoader(Numbers(20, bad=13), batch_size=4))
        for _ in range(3):
            next(batches)
        with pytest.raises(ValueError, match="item 13 is bad") as caught:
            next(batches)
        leave()
    assert [(one.position, one.index, one.worker) for one in failed] == [(1, 13, None)]
    ((batch, key, error),) = unseen
    assert error is caught.value
    assert (batch.number, batch.indices, key == failed[0].key) == (3, (12, 13, 14, 15), True)
    errors = [(event["name"], event["key"] & 0xFF) for event in recorded.events if event["error"]]
    assert errors == [("input_wait", 3), ("fetch", 3), ("item", 13)]


FAILING: dict[str, Callable[[], Any]] = {
    "item": lambda: DataLoader(Numbers(20, bad=13), batch_size=4),
    "of a batch made at once": lambda: DataLoader(Together(20, bad=13), batch_size=4),
    "single item": lambda: DataLoader(Numbers(20, bad=3), batch_size=None),
    "single item of a subset": lambda: DataLoader(Subset(Numbers(20, bad=3), [9, 8, 7, 3]), batch_size=None),
    "single item, converted": lambda: DataLoader(Numbers(20), batch_size=None, collate_fn=fails_at_three),
    "stream": lambda: DataLoader(Stream(8, fail=True), batch_size=2),
    "stream, one by one": lambda: DataLoader(Stream(4, fail=True), batch_size=None),
    "batch of a stream": lambda: DataLoader(Stream(8), batch_size=1, collate_fn=fails_at_three),
}


def fails_at_three(items: Any) -> Any:
    if items in (torch.tensor(3), [torch.tensor(3)]):
        raise ValueError("three")
    return items


class Blamed(FailureListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def unmade(self, one: Failed) -> None:
        self.told.append((one.position, one.index, one.worker))

    def unseen(self, batch: Any, _key: int | None, error: BaseException) -> None:
        self.told.append((batch.number, batch.indices, str(error)))


@pytest.mark.parametrize("name", FAILING)
def test_both_ways_blame_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever raises: the same item is named, and the same records are marked."""
    found = []
    for slow in (False, True):
        if slow:
            monkeypatch.setattr(hooks, "native", None)
        blamed = Blamed()
        with record(dir=tmp_path) as recorded:
            leave = probe.at_failure(blamed)
            loader = FAILING[name]()
            with pytest.raises(ValueError, match=r"is bad|is broken|three"):
                list(loader)
            leave()
        spans = [event for event in recorded.events if event["kind"] == "span"]
        found.append((blamed.told, [(event["name"], event["key"] & 0xFF, event["error"]) for event in spans]))
    assert found[0] == found[1]
    assert len(found[0][0]) == 2


def test_a_batch_whose_worker_raises_is_known() -> None:
    """Which batch it was that never came."""
    unseen: list[Any] = []

    class Told(FailureListener):
        def unseen(self, batch: Any, key: int | None, error: BaseException) -> None:
            unseen.append((batch.number, batch.indices, batch.worker))

    with record():
        leave = probe.at_failure(Told())
        batches = iter(DataLoader(Numbers(20, bad=13), batch_size=4, num_workers=2, multiprocessing_context="fork"))
        for _ in range(3):
            next(batches)
        with pytest.raises(ValueError, match="item 13 is bad"):
            next(batches)
        del batches
        leave()
    assert unseen == [(3, (12, 13, 14, 15), 1)]


def test_an_interrupt_of_a_listener_reaches_the_program() -> None:
    """Ctrl-C is the program's, wherever it comes; a failure of a listener is not."""
    told: list[Any] = []

    def listen(batch: Any, key: int | None, came: Any) -> None:
        told.append((batch.number, batch.indices, came.tolist()))
        if len(told) == 3:
            raise KeyboardInterrupt

    with record() as recorded:
        leave = probe.at_delivery(listen)
        batches = iter(DataLoader(Numbers(10), batch_size=2))
        next(batches), next(batches)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert next(batches).tolist() == [6, 7]
        leave()
    assert told == [(place, (2 * place, 2 * place + 1), [2 * place, 2 * place + 1]) for place in range(4)]
    assert waits(recorded) == [(0, number) for number in range(4)]


def test_who_subscribes_meanwhile_is_told() -> None:
    """Then the fast path is left, and taken again afterwards."""
    told: list[Any] = []

    class Listening:
        def before(self, args: Any, _kwargs: Any) -> Any:
            return args[0]

        def after(self, iterator: Any, _result: Any, _error: Any) -> None:
            told.append(hooks.delivered(iterator))

    with record() as recorded:
        batches = iter(DataLoader(Numbers(20), batch_size=2))
        next(batches), next(batches)
        leave = hooks.next_batch.subscribe(Listening())
        next(batches)
        leave()
        next(batches), next(batches)
    assert [(one.number, one.indices) for one in told] == [(2, (4, 5))]
    assert waits(recorded) == [(0, number) for number in range(5)]


def test_a_batch_that_is_fetched_is_known_meanwhile() -> None:
    """To whoever asks in a dataset, and to nobody afterwards."""
    seen: list[Any] = []

    class Asking(Numbers):
        def __getitem__(self, index: Any) -> Any:
            seen.append(hooks.fetching())
            return super().__getitem__(index)

    with record():
        list(DataLoader(Asking(6), batch_size=2))
        assert hooks.fetching() is None
    assert [(one.number, one.indices) for one in seen[::2]] == [(0, (0, 1)), (1, (2, 3)), (2, (4, 5))]


def test_what_collates_is_surrounded() -> None:
    """And put back after each batch."""
    made: list[Any] = []

    def around(collate: Any) -> Any:
        def call(samples: Any) -> Any:
            made.append(len(samples))
            return collate(samples)

        return call

    with record():
        leave = probe.around_collate(around)
        batches = iter(DataLoader(Numbers(8), batch_size=2, collate_fn=list))
        for _ in range(3):
            next(batches)
            assert batches._dataset_fetcher.collate_fn is list
        leave()
        next(batches)
    assert made == [2, 2, 2]


def test_another_thread_has_no_part_in_it() -> None:
    """What it fetches is ahead of the training, not waited for."""
    came: list[Any] = []
    with record() as recorded:
        batches = iter(DataLoader(Numbers(20), batch_size=2))
        next(batches), next(batches)
        thread = threading.Thread(target=lambda: came.append(next(batches)))
        thread.start()
        thread.join()
        next(batches)
    assert waits(recorded) == [(0, 0), (0, 1), (0, 3)]
    assert waits(recorded, "prefetch") == [(0, 2)]


def test_an_iterator_that_is_gone_is_forgotten() -> None:
    """It is not kept alive, nor is its dataset."""
    import gc
    import weakref

    with record():
        dataset = Numbers(20)
        batches = iter(DataLoader(dataset, batch_size=2))
        for _ in range(4):
            next(batches)
        gone = weakref.ref(batches), weakref.ref(dataset)
        del batches, dataset
        gc.collect()
        assert [one() for one in gone] == [None, None]
