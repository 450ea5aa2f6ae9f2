"""The start of an iteration over a loader, with the arguments that the loader was made with."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.hooks.torch import loader as hooks, private
from sonde.probes import step
from sonde.probes.loader.state import following, process, thread
from sonde.store.probe import ITER, PROBE, batch_key

if TYPE_CHECKING:
    from sonde.events.cores import core as types


class LoaderIterations:
    """Notified when a loop over a loader begins."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> types.Span | None:
        if process.worker or thread.fetch is not None or hooks.waiting():
            return None
        with following:
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
