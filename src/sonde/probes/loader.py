"""Loaders of torch: waiting for a batch, making it in a worker or here, each of its items, the start of an iteration.

Items are timed without touching the dataset: torch iterates over a list of indices, and gets one that notes when the next
is asked for. Where the dataset makes a whole batch itself (`__getitems__`) only the fetch is seen, and its indices are
among its arguments. Loaders inside a dataset are seen as waits only.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sonde import config
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import loader as hooks
from sonde.probes import host, step
from sonde.probes.off import switch_off
from sonde.store.probe import FETCH, INPUT_WAIT, ITEM, ITER, PREFETCH, PROBE, SAMPLES, batch_key
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from sonde.config import Settings
    from sonde.events.choose import core as types

DOING = "following a loader"
MOST_INDICES = 256  # of a batch whose items cannot be seen
MAX_SEARCH = 8  # values of a batch that are looked at, and how deep, for its size

_wait = core.Span(INPUT_WAIT, PROBE, base=step.phases)
_prefetch = core.Span(PREFETCH, PROBE, base=step.phases)
_fetch = core.Span(FETCH, PROBE, base=step.phases)
_item = core.Span(ITEM, PROBE, level=DETAIL, base=step.phases)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.waits = 0  # that run in this thread, inside each other
        self.fetch: _Fetch | None = None


class _Here:
    """This process."""

    worker = False  # it is a loader worker
    leave: tuple[Callable[[], None], ...] = ()


_thread = _Thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.forget)


def install(_settings: Settings) -> Callable[[], None]:
    """Follow loaders from now on, here and in workers that start from now on."""
    run = config.peek("run")
    starters = (hooks.start_in_workers("sonde.session:join", run),) if run else ()
    _Here.leave = (
        *starters,
        hooks.start_in_workers(f"{__name__}:begin_worker"),
        hooks.loader_iter.subscribe(_Iters()),
        hooks.next_batch.lane(_wait_lane),
        hooks.fetch.lane(_fetch_lane),
    )
    return _leave


def _leave() -> None:
    leave, _Here.leave = _Here.leave, ()
    for each in reversed(leave):
        each()


def begin_worker() -> None:
    """Called in each worker. It does not know the step, and fetches for steps to come: all of them count as chosen."""
    _Here.worker = True
    core.set_context(-1, -1)
    step.phases.on = not step.now.none


class _Following(guard[None]):
    """The guard of this probe: a failure switches it off, and a mark in the run says so."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if error is None or not super().__exit__(kind, error, trace):
            return False
        _leave()
        switch_off("loader", DOING)
        return True


_following = _Following(DOING)


# ── an iteration begins ──────────────────────────────────────────────────────────────────────────────────────────────


class _Iters:
    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> types.Span | None:
        if _Here.worker or _thread.fetch is not None:
            return None
        with _following:
            if threading.current_thread() is threading.main_thread():
                step.begin()
            span = _iter_span(args[0])
            core.enter(span)
            return span
        return None

    def after(self, span: types.Span | None, _iterator: Any, error: BaseException | None) -> None:
        if span is not None:
            core.leave(span, None, type(error) if error else None)


def _iter_span(loader: Any) -> types.Span:
    begun = hooks.starting()
    facts = {
        "workers": loader.num_workers,
        "batch_size": loader.batch_size,
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader),
    }
    return core.Span(ITER, PROBE, key=batch_key(*begun, 0) if begun else None, args=facts, base=step.phases)


def _length(loader: Any) -> int | None:
    """Of samplers whose length is torch's business alone: asking others may do anything, and so may iterable datasets."""
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    inner = getattr(sampler, "sampler", sampler)
    if hooks.is_stream(loader) or not all(
        type(one).__module__.startswith("torch.") and hasattr(one, "__len__") for one in (sampler, inner)
    ):
        return None
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None


# ── waiting for a batch ──────────────────────────────────────────────────────────────────────────────────────────────


def _wait_lane(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(iterator: Any) -> Any:
        span = None
        with _following:
            span = _begin_wait()
        try:
            data = original(iterator)
        except BaseException as error:
            with _following:
                _fail_wait(span, iterator, error)
            raise
        with _following:
            _end_wait(span, iterator, data)
        return data

    return wait


def _begin_wait() -> types.Span:
    span = _prefetch
    if not _thread.waits and not _Here.worker and threading.get_ident() == threading.main_thread().ident:
        span = _wait
        if not step.now.begun:
            step.begin()
    _thread.waits += 1
    core.enter(span)
    return span


def _fail_wait(span: types.Span | None, iterator: Any, error: BaseException) -> None:
    if span is None:
        return
    _thread.waits -= 1
    if isinstance(error, StopIteration):
        core.cancel(span)
    else:
        core.leave(span, None if _Here.worker else _key(hooks.settle(iterator)), type(error))


def _end_wait(span: types.Span | None, iterator: Any, data: Any) -> None:
    if span is None:
        return
    _thread.waits -= 1
    if _Here.worker:
        core.leave(span)
        return
    batch = hooks.settle(iterator)
    key = _key(batch)
    core.leave(span, key)
    if not _thread.waits and step.phases.on:
        _note_samples(iterator, batch, key, data)
    host.tick()


def _key(batch: hooks.Batch | None) -> int | None:
    """The number of a batch in the records; None if it is not known which it is."""
    if batch is None or batch.loader is None or batch.number is None:
        return None
    return batch_key(batch.loader, batch.round, batch.number)


def _note_samples(iterator: Any, batch: hooks.Batch | None, key: int | None, data: Any) -> None:
    """How many samples a batch has: as many as were asked for, or else what its first tensor has."""
    asked = None if batch is None or hooks.is_stream(iterator) or not iterator._auto_collation else batch.indices
    count = _rows(data, MAX_SEARCH) if asked is None else len(asked)
    if count is not None:
        core.counter(SAMPLES, count, PROBE, key)


def _rows(data: Any, deeper: int) -> int | None:
    """The first dimension of the first tensor or array in a batch."""
    arrays: Any = (sys.modules["torch"].Tensor, getattr(sys.modules.get("numpy"), "ndarray", ()))
    if isinstance(data, arrays):
        shape: Any = getattr(data, "shape", ())
        return int(shape[0]) if shape else None
    if not deeper or not isinstance(data, Mapping | list | tuple):
        return None
    values = list(data.values()) if isinstance(data, Mapping) else data
    return next((rows for value in values[:MAX_SEARCH] if (rows := _rows(value, deeper - 1)) is not None), None)


# ── making a batch ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Items(list[Any]):
    """The indices of a batch; the time between two requests for the next one is that of an item."""

    __slots__ = ("keys", "loop")

    def __init__(self, asked: Any, keys: Sequence[int | types.Span]) -> None:
        super().__init__(asked)
        self.keys = keys
        self.loop: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.loop = core.iterate_keyed(super().__iter__(), self.keys, _item)
        return self.loop  # type: ignore[no-any-return]


class _Fetch:
    """One call of `fetch`, and what was replaced for the time of it."""

    __slots__ = ("asked", "fetcher", "given", "index", "item", "key", "loop", "original", "span", "swapped")

    def __init__(self, fetcher: Any, asked: Any, batch: hooks.Batch | None) -> None:
        self.fetcher = fetcher
        self.asked = asked
        self.given: _Items | None = None  # what is given to torch in place of `asked`
        self.span = _fetch
        self.key = _key(batch)
        self.loop: Any = None  # over the items of an iterable dataset
        self.item: types.Span | None = None  # of the only item, where there is no automatic batching
        self.index: int | None = None  # its number
        self.swapped: str | None = None  # an attribute of the fetcher
        self.original: Any = None
        if _item.on:
            self._prepare(None if batch is None else batch.indices)

    def _prepare(self, indices: tuple[Any, ...] | None) -> None:
        fetcher, asked = self.fetcher, self.asked
        if hasattr(fetcher, "dataset_iter"):
            first = indices[0] if indices else 0
            self.loop = core.iterate(fetcher.dataset_iter, _item, None, first)
            self._swap("dataset_iter", self.loop)
            return
        if indices is None:
            indices = hooks.plain(asked, batched=fetcher.auto_collation)
        if indices is None:
            return
        if not fetcher.auto_collation and not isinstance(asked, list) and len(indices) == 1:
            only = _keys(indices, fetcher.dataset)[0]
            self.item, self.index = (_item, only) if type(only) is int else (only, None)
            self._swap("collate_fn", partial(_collate, self, fetcher.collate_fn))
        elif fetcher.auto_collation and _asks_one_by_one(fetcher.dataset):
            self.given = _Items(asked, _keys(indices, fetcher.dataset))
        else:
            self.span = _batch_span(indices, fetcher.dataset)

    def _swap(self, name: str, value: Any) -> None:
        self.swapped, self.original = name, getattr(self.fetcher, name)
        setattr(self.fetcher, name, value)

    def begin(self) -> None:
        core.enter(self.span, self.key)
        if self.item is not None:
            core.enter(self.item, self.index)

    def end_item(self, error: type[BaseException] | None) -> None:
        """The item has been made, or failed."""
        item, self.item = self.item, None
        if item is not None:
            core.leave(item, None, error)

    def end(self, error: type[BaseException] | None) -> None:
        """Put back what was replaced, and close what is open."""
        if self.swapped is not None:
            setattr(self.fetcher, self.swapped, self.original)
        self.end_item(error)
        if self.given is not None and self.given.loop is not None:
            self.given.loop.close(error)
        if error is not None and issubclass(error, StopIteration) and not (self.loop and self.loop.count):
            core.cancel(self.span)  # a stream that had ended
        else:
            core.leave(self.span, None, error)


def _fetch_lane(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch(fetcher: Any, asked: Any) -> Any:
        begun = None
        with _following:
            begun = _begin_fetch(fetcher, asked)
        if begun is None:
            return original(fetcher, asked)
        try:
            data = original(fetcher, asked if begun.given is None else begun.given)
        except BaseException as error:
            with _following:
                _end_fetch(begun, type(error))
            raise
        with _following:
            _end_fetch(begun, None)
        return data

    return fetch


def _begin_fetch(fetcher: Any, asked: Any) -> _Fetch | None:
    batch = hooks.fetching()
    if _thread.fetch is not None or (_Here.worker and (batch is None or batch.worker is None)):
        return None
    fetch = _Fetch(fetcher, asked, batch)
    _thread.fetch = fetch
    fetch.begin()
    return fetch


def _end_fetch(fetch: _Fetch, error: type[BaseException] | None) -> None:
    _thread.fetch = None
    fetch.end(error)
    if _Here.worker:
        host.tick()


def _collate(fetch: _Fetch, collate: Callable[[Any], Any], data: Any) -> Any:
    with _following:
        fetch.end_item(None)
    return collate(data)


def _asks_one_by_one(dataset: Any) -> bool:
    """Does torch ask this dataset for one item after the other? A subset of such a one does it in its own `__getitems__`."""
    if not getattr(dataset, "__getitems__", None):
        return True
    subset = sys.modules["torch"].utils.data.Subset
    if getattr(type(dataset), "__getitems__", None) is not subset.__getitems__:
        return False
    return not callable(getattr(dataset.dataset, "__getitems__", None))


def _keys(indices: Sequence[Any], dataset: Any) -> Sequence[Any]:
    """For each item its number in the dataset; for one that has none, a span with the key among its arguments."""
    found = _original(indices, dataset)
    if set(map(type, found)) <= {int}:
        return found
    return [key if type(key) is int else _named_item(place, key) for place, key in enumerate(found)]


def _named_item(place: int, key: Any) -> types.Span:
    return core.Span(ITEM, PROBE, key=place, args={"key": key}, level=DETAIL, base=step.phases)


def _batch_span(indices: tuple[Any, ...], dataset: Any) -> types.Span:
    facts = {"indices": list(_original(indices[:MOST_INDICES], dataset)), "count": len(indices)}
    return core.Span(FETCH, PROBE, args=facts, base=step.phases)


def _original(indices: Sequence[Any], dataset: Any) -> Sequence[Any]:
    """The numbers in the innermost dataset, where this one is a subset (of a subset...) of it."""
    subset = sys.modules["torch"].utils.data.Subset
    if not isinstance(dataset, subset):
        return indices
    while isinstance(dataset, subset):
        chosen, dataset = dataset.indices, dataset.dataset
        indices = [chosen[index] for index in indices]
    return indices if set(map(type, indices)) <= {int} else [hooks.as_number(index) for index in indices]
