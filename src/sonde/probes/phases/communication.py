"""The probe of communication between ranks: calls of `torch.distributed`, waiting for work, and the logger of DDP models.

The all-reduce of a `DistributedDataParallel` model never passes through Python. Its own logger has the times: at each forward
that will be synchronised, those of the backward pass before it. So what the last step waited for is never known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.hooks.torch.collectives import collective, ddp_logged, ddp_made
from sonde.probes import step
from sonde.probes.disable import switch_off
from sonde.store.probe import COMMUNICATION, DDP, PROBE
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

TIMES = {
    "forward": "forward_compute_time",
    "backward_compute": "backward_compute_time",
    "backward_comm": "backward_comm_time",
    "overlap": "backward_compute_comm_overlap_time",
}
WHICH = "backward_comm_time_end"  # distinguishes a backward pass from those before it
ASKING = "querying the logger of a distributed model"

_watching = guard("watching communication between ranks")


def install(_settings: Settings) -> Callable[[], None]:
    """Record communication until the returned function is called."""
    undo = [
        collective.fast_path(_fast_path),
        ddp_made.subscribe(_DistributedModels()),
        ddp_logged.subscribe(_Loggers()),
    ]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def _fast_path(original: Callable[..., Any]) -> Callable[..., Any]:
    name = COMMUNICATION + original.__name__

    def communicate(*args: Any, **kwargs: Any) -> Any:
        span = None
        with _watching:
            span = core.Span(name, PROBE, key=_size(args), base=step.phases)
        if span is None:
            return original(*args, **kwargs)
        with span:
            return original(*args, **kwargs)

    return communicate


def _size(args: tuple[Any, ...]) -> int:
    """The bytes of the first argument, a tensor or a list of them; 0 for anything else."""
    first = args[0] if args else None
    several = first if isinstance(first, list | tuple) else [first]
    return sum(int(getattr(one, "nbytes", 0)) for one in several)


class _DistributedModels:
    """Subscribes to models that are distributed: their loggers are to measure each backward pass."""

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        return args[0]

    def after(self, model: Any, _result: None, error: BaseException | None) -> None:
        if error is None:
            private.log_every_backward(model)


class _Forward:
    """The newest forward of a distributed model."""

    __slots__ = ("recorded", "step")

    def __init__(self) -> None:
        self.step: int | None = None  # None: what comes of it is not recorded
        self.recorded: object = None  # which backward pass was reported


class _Loggers:
    """Notified when a logger has taken the times of a backward pass, which is when the next forward begins."""

    def __init__(self) -> None:
        self.forwards: WeakTable[_Forward] = WeakTable()
        self.off = False

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        return args[0]

    def after(self, logger: Any, _result: None, _error: BaseException | None) -> None:
        if self.off:
            return
        with guard(ASKING):
            forward = self.forwards.get(logger)
            if forward is None:
                forward = self.forwards[logger] = _Forward()
            if forward.step is not None:
                _record(private.logged_times(logger), forward)
            forward.step = core.get_context()[0] if step.phases.on else None
            return
        self.off = True
        switch_off("ddp", ASKING)


def _record(data: dict[str, Any], forward: _Forward) -> None:
    """Write the times of a backward pass, once: after two forwards in a row they are still those of the same."""
    if data.get(WHICH) == forward.recorded:
        return
    forward.recorded = data.get(WHICH)
    for name, key in TIMES.items():
        if key in data:
            core.counter(DDP + name, data[key], PROBE, 0, step=forward.step)
