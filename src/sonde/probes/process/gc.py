"""The probe of the garbage collector: its longer collections, those of the generations 1 and 2, once training has begun."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.status import native
from sonde.probes import step
from sonde.store.probe import GC, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

_spans = tuple(core.Span(GC, PROBE, key=generation, base=step.phases) for generation in range(3))
_watching = guard("watching the garbage collector")


def install(_settings: Settings) -> Callable[[], None]:
    """Record collections until the returned function is called."""
    callback = _collects if native is None else native.collecting(_spans)
    stop_waiting = step.at_begin(lambda: gc.callbacks.append(callback))

    def leave() -> None:
        stop_waiting()
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)

    return leave


def _collects(phase: str, info: dict[str, int]) -> None:
    """What `native.collecting` does, too."""
    generation = info.get("generation", 0)
    if generation == 0:  # short, and there may be thousands in a second
        return
    with _watching:
        span = _spans[min(generation, 2)]
        if phase == "start":
            span.start()
        else:
            span.stop()
