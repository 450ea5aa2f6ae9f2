"""The probe of optimizers: their steps, and which of these end a step of training.

The leader's updates end steps; it is the first optimizer that updates. Those of others count inside of its steps, so a pair
that updates in turn (GAN, SAC) shares a step. Another optimizer becomes the leader

- when it updates twice while the leader rests (k-fold, ensembles, a second fit). Both updates end a step; the first is written late,
  with its own time.
- at once, if the leader is gone, or the optimizer was made since the leader last updated.

An update that a gradient scaler skips ends a step with a flag. Where optimizers step inside the backward pass only, its end is
the update; what they take counts as optimizer, inside of that pass.
"""

from __future__ import annotations

import os
import weakref
from itertools import count
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.optimizer import optimizer_made, optimizer_step, scaler_step
from sonde.probes import step
from sonde.probes.learning.rate import Rates
from sonde.store.probe import OPTIMIZER, PROBE, UPDATE_ABORTED, UPDATE_SKIPPED
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

_watching = guard("watching a gradient scaler")
_noting = guard("noting a new optimizer")


class Optimizers:
    """Those of this process, and whose update ends a step. Watches their steps."""

    def __init__(self) -> None:
        self.spans: list[core.Span] = []  # by the number of the optimizer
        self.inner = core.Span(OPTIMIZER, PROBE, base=step.phases)  # of a step inside a backward pass
        self.numbers: WeakTable[int] = WeakTable()
        # Updates of others since the leader's last one: when, and with which flags.
        self.waiting: WeakTable[tuple[int, int]] = WeakTable()
        self.fresh: WeakTable[bool] = WeakTable()  # those that were made since then
        self.rates = Rates()
        self.forget()

    def forget(self) -> None:
        """No optimizer has stepped."""
        self.rates.forget()
        self.leader: Callable[[], Any] = _nobody
        for table in (self.numbers, self.waiting, self.fresh):
            table.clear()
        self.scaling = False  # inside of a gradient scaler's step
        self.stepped = False  # an optimizer has stepped in it

    @_noting
    def made(self, optimizer: Any) -> None:
        """There is a new optimizer."""
        step.leave_manual()
        optimizer_step.unlead()  # the leader's next update has to be noticed
        self.fresh[optimizer] = True

    def begins(self, optimizer: Any) -> core.Span:
        """A step of an optimizer begins."""
        if not step.now.begun:
            step.begin()
        step.leave_manual()
        if optimizer is not self.leader():
            optimizer_step.unlead()
        span = self._span(optimizer)
        span.start()
        return span

    def ends(self, optimizer: Any, token: core.Span | bool, error: BaseException | None) -> None:
        """It has ended."""
        span = self._span(optimizer) if isinstance(token, bool) else token
        if error is None:
            span.stop()
        else:
            span.__exit__(type(error), error, None)
        self.stepped = True
        self.rates.note(optimizer, self.numbers.get(optimizer) or 0)
        flags = UPDATE_ABORTED if error is not None else 0
        if self.scaling and error is None and _overflow(optimizer):
            flags = UPDATE_SKIPPED
        self.updated(optimizer, flags)

    def begins_inside(self) -> None:
        """A step inside a backward pass begins."""
        self.inner.start()

    def ends_inside(self, error: BaseException | None) -> None:
        """It has ended."""
        if error is None:
            self.inner.stop()
        else:
            self.inner.__exit__(type(error), error, None)

    def updated(self, optimizer: Any, flags: int) -> None:
        """There was an update, which may have been skipped: end the step, if it is the leader's."""
        alone = optimizer is self.leader() and not self.waiting
        if not self._leads(optimizer):
            self.waiting[optimizer] = monotonic_ns(), flags
            return
        late = self.waiting.get(optimizer)
        self.waiting.clear()
        self.fresh.clear()
        if not step.now.explicit:
            if late is not None:
                step.end_late(late[1], late[0])
            step.end(flags)
        if alone and step.now.all and not self.scaling:
            ended = None if step.now.explicit else step.quick_end[0]
            span = self._span(optimizer)
            stepped = self.rates.following(self.numbers.get(optimizer) or 0)
            optimizer_step.lead(optimizer, span.start, span.stop, stepped, ended)

    def _leads(self, optimizer: Any) -> bool:
        """Is it the leader from now on?"""
        leader = self.leader()
        if leader is optimizer:
            return True
        if leader is not None and optimizer not in self.fresh and optimizer not in self.waiting:
            return False
        self.leader = weakref.ref(optimizer)
        return True

    def _span(self, optimizer: Any) -> core.Span:
        """Its span, whose key is the smallest number that no other living optimizer has."""
        number = self.numbers.get(optimizer)
        if number is None:
            taken = set(self.numbers.values())
            number = self.numbers[optimizer] = next(free for free in count() if free not in taken)
        while len(self.spans) <= number:
            self.spans.append(core.Span(OPTIMIZER, PROBE, key=len(self.spans), base=step.phases))
        return self.spans[number]


def _nobody() -> None:
    return None


_optimizers = Optimizers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_optimizers.waiting.clear)  # these updates are the parent's


def install(_settings: Settings) -> Callable[[], None]:
    """Record steps of optimizers, and end steps of training, until the returned function is called."""
    _optimizers.forget()
    optimizer_step.inside_backward = False
    undo = [
        optimizer_step.send_steps_to(_optimizers),
        scaler_step.fast_path(_scaling),
        optimizer_made.fast_path(_making),
    ]

    def leave() -> None:
        while undo:
            undo.pop()()
        _optimizers.forget()

    return leave


def number_of(optimizer: Any) -> int:
    """The number of an optimizer in the records."""
    return _optimizers.numbers.get(optimizer) or 0


def updated_inside() -> None:
    """A backward pass has ended in which optimizers stepped: an update, if there is none outside of it."""
    if _optimizers.leader() is None and not step.now.explicit:
        step.end(0)


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        _optimizers.made(optimizer)
        return result

    return call


def _scaling(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer_step.unlead()
        _optimizers.scaling, _optimizers.stepped = True, False
        try:
            result = original(scaler, optimizer, *args, **kwargs)
        finally:
            _optimizers.scaling = False
        if not _optimizers.stepped:
            with _watching:
                _optimizers.updated(optimizer, UPDATE_SKIPPED)
        return result

    return call


def _overflow(optimizer: Any) -> bool:
    """Does a fused optimizer, which steps in any case, leave the parameters alone? Known on the host only."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and found.is_cpu and bool(found.item())
