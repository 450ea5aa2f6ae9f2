"""The probe of communication between ranks: calls of `torch.distributed`, waiting for work, and the logger of DDP models.

The all-reduce of a `DistributedDataParallel` model never passes through Python. Its own logger has the times; they belong
to the step before. They are asked for when a step has ended, though not of every one where steps take less than a few
milliseconds: asking costs about 10 µs.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.collectives import collective, ddp_made
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.probes import step
from sonde.probes.off import switch_off
from sonde.store.probe import COMMUNICATION, DDP, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

TIMES = {
    "forward": "forward_compute_time",
    "backward_compute": "backward_compute_time",
    "backward_comm": "backward_comm_time",
    "overlap": "backward_compute_comm_overlap_time",
}
ASKING = "asking the logger of a distributed model"

_watching = guard("watching communication between ranks")


def install(_settings: Settings) -> Callable[[], None]:
    """Record communication until the returned function is called."""
    models = _Models()
    undo = [collective.lane(_lane), ddp_made.subscribe(models), models.forget]

    def leave() -> None:
        while undo:
            undo.pop()()

    return leave


def _lane(original: Callable[..., Any]) -> Callable[..., Any]:
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


class _Models:
    """The distributed models of this process, and what their loggers say."""

    def __init__(self) -> None:
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.leave: Callable[[], None] = _nothing  # ends what the first model began

    def forget(self) -> None:
        """Ask no more."""
        self.leave()

    def before(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        """A model is being distributed."""
        return args[0]

    def after(self, model: Any, _result: None, error: BaseException | None) -> None:
        """It is."""
        if error is None:
            model._set_ddp_runtime_logging_sample_rate(1)
            if not self.models:
                self.leave()
                self.leave = step.at_update(self.ask)
            self.models.add(model)

    def ask(self) -> None:
        """Write the times of the step before the one that has ended."""
        following = core.get_context()[0]
        if following is None or not step.phases.on:
            return
        with guard(ASKING):
            for model in tuple(self.models):
                _tell(model._get_ddp_logging_data(), following - 2)
            # What this step waited for is known at the end of the next one, which may come soon: it has to be told of too.
            optimizer_step.unlead()
            return
        self.leave()
        switch_off("ddp", ASKING)


def _nothing() -> None:
    pass


def _tell(data: dict[str, Any], before: int) -> None:
    if before < 0:
        return
    for name, key in TIMES.items():
        if data.get(key):
            core.counter(DDP + name, data[key], PROBE, 0, step=before)
