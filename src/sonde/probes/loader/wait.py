"""Waiting for a batch of a loader, the batch as it is delivered, and the start of an iteration.

Loaders inside a dataset are seen as waits only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch import loader as hooks, private
from sonde.probes import step
from sonde.probes.loader import ledger
from sonde.probes.loader.fetch import original_numbers
from sonde.probes.loader.listeners import report_unseen, subscribed
from sonde.probes.loader.state import following, key_of, process, thread
from sonde.probes.process import sampler
from sonde.store.ledger import ALONE, STREAM
from sonde.store.probe import INPUT_WAIT, ITER_END, PREFETCH, PROBE, SAMPLES, batch_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.events.cores import core as types

MAX_SEARCH = 8  # values of a batch that are looked at, and how deep, for its size

wait_span = core.Span(INPUT_WAIT, PROBE, base=step.phases)
size_span = core.Span(SAMPLES, PROBE, base=step.phases)
_prefetch = core.Span(PREFETCH, PROBE, base=step.phases)
_ending = core.Span(ITER_END, PROBE, base=step.phases)


# ── waiting for a batch ──────────────────────────────────────────────────────────────────────────────────────────────


def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of `__next__` of a loader's iterator."""

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


@following
def _begin_wait() -> types.Span:
    span = _prefetch
    if not thread.waits and thread.main and not process.worker and not hooks.waiting():
        span = wait_span
        if not step.now.begun:
            step.begin()
    thread.waits += 1
    core.enter(span)
    return span


@following
def _fail_wait(span: types.Span | None, iterator: Any, error: BaseException) -> None:
    if span is None:
        return
    thread.waits -= 1
    if isinstance(error, StopIteration):
        _end_loop(span, _ending_key(iterator))
        return
    batch = None if process.worker else hooks.end_fetch(iterator)
    core.leave(span, key_of(batch), type(error))
    if not thread.waits and not process.worker and not hooks.waiting():
        report_unseen(batch, key_of(batch), error)


@following
def _end_wait(span: types.Span | None, iterator: Any, data: Any) -> None:
    if span is None:
        return
    thread.waits -= 1
    if process.worker:
        core.leave(span)
        return
    batch = hooks.end_fetch(iterator)
    key = key_of(batch)
    core.leave(span, key)
    if not thread.waits and not hooks.waiting():
        _deliver(iterator, batch, key, data)
    sampler.tick()


@following
def deliver_late(iterator: Any, batch: hooks.Batch | None, data: Any) -> None:
    """A batch came by the fast path and is not plain: its indices are no list of numbers, or it is not known which it is."""
    _deliver(iterator, batch, key_of(batch), data)


@following
def enter_late(batch: hooks.Batch, key: int, flags: int) -> None:
    """The ledger had no room for a batch that came by the fast path, or is not open yet."""
    if batch.indices is not None:
        ledger.note(key, batch.indices, batch.worker, flags)


@following
def fail_late(batch: hooks.Batch | None, error: BaseException) -> None:
    """A wait on the fast path has ended with this."""
    core.leave(wait_span, key_of(batch), type(error))
    report_unseen(batch, key_of(batch), error)


@following
def end_late(key: int) -> None:
    """A wait on the fast path has found that there is no further batch. `key`: that of the first one."""
    _end_loop(wait_span, key)


def _end_loop(span: types.Span, key: int | None) -> None:
    if key is None:
        core.cancel(span)
    else:
        core.turn(span, _ending, key)


def _ending_key(iterator: Any) -> int | None:
    """The key of the first batch of an iterator that has ended; None: nobody trains here."""
    if thread.waits or process.worker or hooks.waiting():
        return None
    begun = hooks.round_of(iterator)
    return None if begun is None else batch_key(*begun, 0)


def _deliver(iterator: Any, batch: hooks.Batch | None, key: int | None, data: Any) -> None:
    """The program gets a batch."""
    stream = private.is_iterable(iterator)
    count = _samples(iterator, batch, data, stream=stream)
    if count is not None:
        core.note(size_span, count, key)
    batch = _delivered_batch(iterator, batch, count if stream else None)
    if key is not None and batch is not None and batch.indices is not None:
        flags = (STREAM if stream else 0) | (0 if private.auto_collation(iterator) else ALONE)
        ledger.note(key, batch.indices, batch.worker, flags)
    for listener in subscribed.listeners:
        listener(batch, key, data)


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


def _delivered_batch(iterator: Any, batch: hooks.Batch | None, came: int | None) -> hooks.Batch | None:
    """The same batch with its numbers in the innermost dataset; of a stream only those that came, if it ended here."""
    if batch is None or batch.indices is None:
        return batch
    indices = original_numbers(batch.indices, private.dataset(iterator))
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
