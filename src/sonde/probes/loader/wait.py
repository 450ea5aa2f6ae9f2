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
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core, recorder
from sonde.guard import guard
from sonde.hooks.torch import loader as hooks, private
from sonde.probes import step
from sonde.probes.loader import ledger
from sonde.probes.off import switch_off
from sonde.probes.process import sampler
from sonde.store.ledger import ALONE, STREAM
from sonde.store.probe import FETCH, INPUT_WAIT, ITEM, ITER, ITER_END, PREFETCH, PROBE, SAMPLES, batch_key
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sonde.config import Settings
    from sonde.events.choose import core as types

    # Told of each batch: which it is, its number in the records, and the batch itself as the program gets it.
    Listener = Callable[[hooks.Batch | None, int | None, Any], None]

DOING = "following a loader"
TELLING = "reporting a batch"
MOST_INDICES = 256  # of a batch whose items cannot be seen
MAX_SEARCH = 8  # values of a batch that are looked at, and how deep, for its size

_wait = core.Span(INPUT_WAIT, PROBE, base=step.phases)
_prefetch = core.Span(PREFETCH, PROBE, base=step.phases)
_ending = core.Span(ITER_END, PROBE, base=step.phases)
_fetch = core.Span(FETCH, PROBE, base=step.phases)
_item = core.Span(ITEM, PROBE, level=DETAIL, base=step.phases)
_sizes = core.Span(SAMPLES, PROBE, base=step.phases)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.main = threading.get_ident() == threading.main_thread().ident
        self.waits = 0  # that run in this thread, inside each other
        self.fetch: _Fetch | None = None


class _Here:
    """This process."""

    worker = False  # it is a loader worker
    leave: tuple[Callable[[], None], ...] = ()
    listeners: tuple[Listener, ...] = ()
    failures: tuple[Failures, ...] = ()
    around: Callable[[Any], Any] | None = None  # what collates


class Failed(NamedTuple):
    """A batch that could not be made, and the item that raised; None: not known, or it was not an item that raised."""

    key: int | None
    position: int | None
    index: Any
    worker: int | None


class Failures:
    """Who wants to know of batches that never came. Both are called before the program gets the exception."""

    def unmade(self, failed: Failed) -> None:
        """In the process that makes batches, a worker or this one: it failed."""

    def unseen(self, batch: hooks.Batch | None, key: int | None, error: BaseException) -> None:
        """In the process that waits for them: the wait ended with this."""


_thread = _Thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.forget)


def install(settings: Settings) -> Callable[[], None]:
    """Follow loaders from now on, here and in workers that start from now on."""
    ledger.begin(settings)
    _Here.leave = (
        hooks.start_in_workers(begin_worker),
        hooks.loader_iter.subscribe(_Iters()),
        hooks.next_batch.fast_path(_waiting),
        hooks.fetch.fast_path(_fetching),
    )
    hooks.use_fast_path(_parts())
    return _leave


def _parts() -> dict[str, Any]:
    """What happens to plain batches on their fast path: see `batches` in `native/loader.pyi`."""
    return {
        "here": _Here, "book": ledger.book(), "tick": sampler.tick, "pause": step.PAUSE_NS,
        "enter": core.enter, "leave": core.leave, "note": core.note,
        "iterate_on": core.iterate_on, "items": _Items,
        "wait": _wait, "samples": _sizes, "fetch": _fetch, "item": _item,
        "together": _together, "original": _original, "unmade": _unmade,
        "enter_late": _enter_late, "deliver_late": _deliver_late, "fail_late": _fail_late, "end_late": _end_late,
    }  # fmt: skip


def _leave() -> None:
    ledger.end()
    hooks.rest()
    leave, _Here.leave = _Here.leave, ()
    for each in reversed(leave):
        each()


def begin_worker() -> None:
    """Called in each worker. It does not know the step, and fetches for steps to come: all of them count as chosen."""
    _Here.worker = True
    number, serving = hooks.worker_number(), recorder.serving()
    if number is not None and serving is not None:
        serving.become_worker(number)
    core.set_context(-1, -1)
    step.phases.on = not step.now.none
    hooks.use_fast_path(_parts(), _first_key)


def _give_up() -> None:
    """A failure switches this probe off, and a mark in the run says so."""
    _leave()
    switch_off("loader", DOING)


_following = guard(DOING, then=_give_up)


# ── listeners ────────────────────────────────────────────────────────────────────────────────────────────────────────


def at_delivery(listener: Listener, quick: Callable[[Listener], Listener] | None = None) -> Callable[[], None]:
    """Call `listener` for each batch that a loop of this process gets, while this probe is in place; returns the end of it.

    Not in loader workers, and not for loaders inside a dataset. The indices are those in the innermost dataset, as in the
    table `items`. A listener that fails is dropped, and the failure counted. `quick` makes of it, with its guard, what is
    called in its place.
    """

    def drop() -> None:
        _Here.listeners = tuple(one for one in _Here.listeners if one is not told)

    guarded = guard(TELLING, then=drop)(listener)
    told = guarded if quick is None else quick(guarded)
    _Here.listeners = (*_Here.listeners, told)
    return drop


_telling = guard(TELLING)


def around_collate(make: Callable[[Any], Any]) -> Callable[[], None]:
    """Let `make(collate)` be called in the place of what collates a batch, here and in forked workers; returns the end of it.

    It must pass on argument, result and exceptions as they are. There is one at a time.
    """
    _Here.around = make

    def leave() -> None:
        if _Here.around is make:
            _Here.around = None

    return leave


def at_failure(failures: Failures) -> Callable[[], None]:
    """Tell of batches that could not be made, here and in forked workers; returns the end of it."""
    _Here.failures = (*_Here.failures, failures)

    def leave() -> None:
        _Here.failures = tuple(one for one in _Here.failures if one is not failures)

    return leave


def _tell_unmade(fetch: _Fetch) -> None:
    for failures in _Here.failures:
        with _telling:
            batch = hooks.fetching()
            failures.unmade(Failed(fetch.key, *fetch.blame(), None if batch is None else batch.worker))


def _tell_unseen(batch: hooks.Batch | None, key: int | None, error: BaseException) -> None:
    for failures in _Here.failures:
        with _telling:
            failures.unseen(batch, key, error)


# ── an iteration begins ──────────────────────────────────────────────────────────────────────────────────────────────


class _Iters:
    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> types.Span | None:
        if _Here.worker or _thread.fetch is not None or hooks.waiting():
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
        **_lengths(loader),
        "prefetch": loader.prefetch_factor,
        "pin_memory": loader.pin_memory,
        "persistent": loader.persistent_workers,
        "sampler": type(loader.sampler).__name__,
        "drop_last": loader.drop_last,
    }
    return core.Span(ITER, PROBE, key=batch_key(*begun, 0) if begun else None, args=facts, base=step.phases)


def _lengths(loader: Any) -> dict[str, int | None]:
    """How many batches and items a round has.

    Only of samplers whose length is torch's business alone: asking others may do anything, and so may iterable datasets.
    """
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    inner = getattr(sampler, "sampler", sampler)
    if private.is_iterable(loader) or not all(
        type(one).__module__.startswith("torch.") and hasattr(one, "__len__") for one in (sampler, inner)
    ):
        return {"length": None, "items": None}
    try:
        return {"length": len(sampler), "items": len(inner)}
    except (TypeError, NotImplementedError):
        return {"length": None, "items": None}


# ── waiting for a batch ──────────────────────────────────────────────────────────────────────────────────────────────


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(iterator: Any) -> Any:
        span = _begin_wait()
        try:
            data = original(iterator)
        except BaseException as error:
            _fail_wait(span, iterator, error)
            raise
        _end_wait(span, iterator, data)
        return data

    return wait


@_following
def _begin_wait() -> types.Span:
    span, thread = _prefetch, _thread
    if not thread.waits and thread.main and not _Here.worker and not hooks.waiting():
        span = _wait
        if not step.now.begun:
            step.begin()
    thread.waits += 1
    core.enter(span)
    return span


@_following
def _fail_wait(span: types.Span | None, iterator: Any, error: BaseException) -> None:
    if span is None:
        return
    _thread.waits -= 1
    if isinstance(error, StopIteration):
        _end_loop(span, _ending_key(iterator))
        return
    batch = None if _Here.worker else hooks.settle(iterator)
    core.leave(span, _key(batch), type(error))
    if not _thread.waits and not _Here.worker and not hooks.waiting():
        _tell_unseen(batch, _key(batch), error)


@_following
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
    if not _thread.waits and not hooks.waiting():
        _deliver(iterator, batch, key, data)
    sampler.tick()


@_following
def _deliver_late(iterator: Any, batch: hooks.Batch | None, data: Any) -> None:
    """A batch came by the fast path and is not plain: its indices are no list of numbers, or it is not known which it is."""
    _deliver(iterator, batch, _key(batch), data)


@_following
def _enter_late(batch: hooks.Batch, key: int, flags: int) -> None:
    """The ledger had no room for a batch that came by the fast path, or is not open yet."""
    if batch.indices is not None:
        ledger.note(key, batch.indices, batch.worker, flags)


@_following
def _fail_late(batch: hooks.Batch | None, error: BaseException) -> None:
    """A wait on the fast path has ended with this."""
    core.leave(_wait, _key(batch), type(error))
    _tell_unseen(batch, _key(batch), error)


@_following
def _end_late(key: int) -> None:
    """A wait on the fast path has found that there is no further batch. `key`: that of the first one."""
    _end_loop(_wait, key)


def _end_loop(span: types.Span, key: int | None) -> None:
    if key is None:
        core.cancel(span)
    else:
        core.turn(span, _ending, key)


def _ending_key(iterator: Any) -> int | None:
    """The key of the first batch of an iterator that has ended; None: nobody trains here."""
    if _thread.waits or _Here.worker or hooks.waiting():
        return None
    begun = hooks.round_of(iterator)
    return None if begun is None else batch_key(*begun, 0)


def _deliver(iterator: Any, batch: hooks.Batch | None, key: int | None, data: Any) -> None:
    """The program gets a batch."""
    stream = private.is_iterable(iterator)
    count = _samples(iterator, batch, data, stream=stream)
    if count is not None:
        core.note(_sizes, count, key)
    batch = _settled(iterator, batch, count if stream else None)
    if key is not None and batch is not None and batch.indices is not None:
        flags = (STREAM if stream else 0) | (0 if private.auto_collation(iterator) else ALONE)
        ledger.note(key, batch.indices, batch.worker, flags)
    for listener in _Here.listeners:
        listener(batch, key, data)


def _key(batch: hooks.Batch | None) -> int | None:
    """The number of a batch in the records; None if it is not known which it is."""
    if batch is None or batch.loader is None or batch.number is None:
        return None
    return batch_key(batch.loader, batch.round, batch.number)


def _samples(iterator: Any, batch: hooks.Batch | None, data: Any, *, stream: bool) -> int | None:
    """How many samples a batch has: as many as were asked for, or else what its first tensor has."""
    asked = None if batch is None or stream or not private.auto_collation(iterator) else batch.indices
    if asked is None:
        return _rows(data, MAX_SEARCH)
    return _rows_of_item(data) or 1 if hooks.unpacks(iterator) else len(asked)


def _rows_of_item(data: Any) -> int | None:
    """The samples in a single item that a collate of the user's has made: it is a batch itself if two of its tensors are of one length."""
    parts = list(data.values()) if isinstance(data, Mapping) else data
    if not isinstance(parts, list | tuple):
        return None
    rows = [count for part in parts[:MAX_SEARCH] if (count := _rows(part, 0)) is not None]
    return rows[0] if len(rows) > 1 and rows[0] in rows[1:] else None


def _settled(iterator: Any, batch: hooks.Batch | None, came: int | None) -> hooks.Batch | None:
    """The same batch with its numbers in the innermost dataset; of a stream only those that came, if it ended here."""
    if batch is None or batch.indices is None:
        return batch
    indices = _original(batch.indices, private.dataset(iterator))
    if came is not None and came < len(indices) and _counts_rows(iterator):
        indices = indices[:came]
    return batch if indices is batch.indices else batch._replace(indices=tuple(indices))


def _counts_rows(iterator: Any) -> bool:
    """Is the first dimension of what this loader delivers that of the items? Of a collate of the user's it is not known."""
    default = sys.modules["torch"].utils.data.default_collate
    return private.auto_collation(iterator) and private.collate_fn(iterator) is default


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

    # Without `__init__` and slots: a batch costs as many Python frames less.
    keys: Sequence[int | types.Span] = ()
    inner: Any = None
    loop: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.inner = list.__iter__(self)
        self.loop = core.iterate_keyed(self.inner, self.keys, _item)
        return self.loop  # type: ignore[no-any-return]

    def at(self) -> int | None:
        """The place of the item that is being made; None: all are made, or none."""
        handed = self.loop.count if self.loop is not None else 0
        all_made = handed and len(self.inner.__reduce__()) < 3  # an iterator that has ended knows its list no more
        return handed - 1 if handed and not all_made else None


class _Fetch:
    """One call of `fetch`, and what was replaced for the time of it."""

    fetcher: Any
    asked: Any
    given: _Items | None = None  # what is given to torch in place of `asked`
    span = _fetch
    key: int | None = None
    loop: Any = None  # over the items of an iterable dataset
    first = 0  # the number of the first of these
    item: types.Span | None = None  # of the only item, where there is no automatic batching
    index: int | None = None  # its number
    swapped: str | None = None  # an attribute of the fetcher
    original: Any = None
    collate: Any = None  # what collates, where something else is called around it

    def prepare(self, indices: tuple[Any, ...] | None) -> None:
        """See that the items are seen."""
        fetcher, asked = self.fetcher, self.asked
        if hasattr(fetcher, "dataset_iter"):
            self.first = indices[0] if indices else 0
            if hasattr(type(fetcher.dataset_iter), "__next__"):  # else torch says what is wrong
                self.loop = core.iterate_on(fetcher.dataset_iter, _item, self.first)
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
        elif fetcher.auto_collation and hooks.item_by_item(fetcher.dataset):
            self.given = _Items(asked)
            self.given.keys = _keys(indices, fetcher.dataset)
        else:
            self.span = _batch_span(_original(indices[:MOST_INDICES], fetcher.dataset), len(indices))

    def _swap(self, name: str, value: Any) -> None:
        self.swapped, self.original = name, getattr(self.fetcher, name)
        setattr(self.fetcher, name, value)

    def blame(self) -> tuple[int | None, Any]:
        """The place and the number of the item that is being made. To be asked before `end`."""
        if self.item is not None:
            return 0, self.index
        if self.loop is not None:
            made, asked = self.loop.count, hooks.plain(self.asked, batched=self.fetcher.auto_collation)
            return (made, self.first + made) if asked is None or made < len(asked) else (None, None)
        place = self.given.at() if self.given is not None else None
        if self.given is None or place is None:
            return None, None
        key = self.given.keys[place] if place < len(self.given.keys) else None
        return place, key if type(key) is int else None

    def end_item(self, error: type[BaseException] | None) -> None:
        """The item has been made, or failed."""
        item, self.item = self.item, None
        if item is not None:
            core.leave(item, None, error)

    def end(self, error: type[BaseException] | None) -> None:
        """Put back what was replaced, and close what is open."""
        if self.collate is not None:
            self.fetcher.collate_fn = self.collate
        if self.swapped is not None:
            setattr(self.fetcher, self.swapped, self.original)
        self.end_item(error)
        if self.given is not None and self.given.loop is not None:
            self.given.loop.close(error)
        if error is not None and issubclass(error, StopIteration) and not (self.loop and self.loop.count):
            core.cancel(self.span)  # a stream that had ended
        else:
            core.leave(self.span, None, error)


def _fetching(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch(fetcher: Any, asked: Any) -> Any:
        begun = _begin_fetch(fetcher, asked)
        if begun is None:
            return original(fetcher, asked)
        try:
            data = original(fetcher, asked if begun.given is None else begun.given)
        except BaseException as error:
            _end_fetch(begun, type(error))
            raise
        _end_fetch(begun, None)
        return data

    return fetch


@_following
def _begin_fetch(fetcher: Any, asked: Any) -> _Fetch | None:
    batch = hooks.fetching()
    if _thread.fetch is not None or hooks.made_fast() or (_Here.worker and (batch is None or batch.worker is None)):
        return None
    fetch = _Fetch()
    fetch.fetcher, fetch.asked, fetch.key = fetcher, asked, _key(batch)
    if _item.on:
        fetch.prepare(None if batch is None else batch.indices)
    _thread.fetch = fetch
    core.enter(fetch.span, fetch.key)
    if fetch.item is not None:
        core.enter(fetch.item, fetch.index)
    if _Here.around is not None:
        collate = fetcher.collate_fn
        fetcher.collate_fn, fetch.collate = _Here.around(collate), collate
    return fetch


@_following
def _end_fetch(fetch: _Fetch, error: type[BaseException] | None) -> None:
    _thread.fetch = None
    if error is not None and _Here.failures and not issubclass(error, StopIteration):
        _tell_unmade(fetch)
    fetch.end(error)
    if _Here.worker:
        sampler.tick()


@_following
def _first_key(fetcher: Any) -> int | None:
    """The key of the first batch of this fetcher, if its batches are made item by item, and the items have their own numbers."""
    begun, dataset = hooks.at_work(), fetcher.dataset
    together = not fetcher.auto_collation or getattr(dataset, "__getitems__", None)
    if begun is None or together or isinstance(dataset, sys.modules["torch"].utils.data.Subset):
        return None
    return batch_key(*begun, 0)


@_following
def _unmade(
    fetcher: Any, asked: Any, key: int, error: type[BaseException], items: _Items | None, loop: Any, first: int,
    span: types.Span, index: int | None,
) -> None:  # fmt: skip
    """A batch that was made by the fast path failed. `items`, `loop` with `first`, `index`: of its kind of batch, as in a `_Fetch`."""
    fetch = _Fetch()
    fetch.fetcher, fetch.asked, fetch.key, fetch.span = fetcher, asked, key, span
    fetch.given, fetch.loop, fetch.first = items, loop, first
    fetch.index, fetch.item = index, None if index is None else _item
    _end_fetch(fetch, error)


@_following
def _together(numbers: tuple[int, ...]) -> types.Span:
    """The span of a batch that is made at once, on the fast path."""
    return _batch_span(numbers[:MOST_INDICES], len(numbers)) if _item.on else _fetch


def _collate(fetch: _Fetch, collate: Callable[[Any], Any], data: Any) -> Any:
    with _following:
        fetch.end_item(None)
    return collate(data)


def _keys(indices: Sequence[Any], dataset: Any) -> Sequence[Any]:
    """For each item its number in the dataset; for one that has none, a span with the key among its arguments."""
    found = _original(indices, dataset)
    if set(map(type, found)) <= {int}:
        return found
    return [key if type(key) is int else _named_item(place, key) for place, key in enumerate(found)]


def _named_item(place: int, key: Any) -> types.Span:
    return core.Span(ITEM, PROBE, key=place, args={"key": key}, level=DETAIL, base=step.phases)


def _batch_span(numbers: Sequence[Any], count: int) -> types.Span:
    facts = {"indices": list(numbers), "count": count}
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
