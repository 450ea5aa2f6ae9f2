"""The probe of optimizers: their steps, and which of these end a step of training.

The anchor is the first optimizer that ever stepped: its update ends the step, those of others count inside of it. It leaves
its place to another one when it is gone, and when that one trains by itself (a second fit beside the first optimizer):

- It was made since the anchor last stepped: at once.
- It was there before, and steps several times in a row. That may be the second fit, or two optimizers of one training of which one
  steps more often. Once it has done so often enough, it is the anchor, and its updates since are written as the ends of steps that
  they were. An anchor that comes back soon after that has its place again. If the program ends before that, they are written at
  its end, unless they are no more than such a pair has in one of its rounds.

An update that a gradient scaler skips ends a step with a flag. Where optimizers step inside the backward pass only, its end is
the update; what they take is told as optimizer, inside of that pass.
"""

from __future__ import annotations

import os
import weakref
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core, recorder
from sonde.guard import guard
from sonde.hooks.torch.optimizer import optimizer_made, optimizer_step, scaler_step
from sonde.probes import step
from sonde.store.probe import OPTIMIZER, PROBE, UPDATE_ABORTED, UPDATE_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

NEW = 2  # so many steps in a row make an optimizer the anchor that came when the anchor had stepped as often
OLD = 32  # and so many any other one

_watching = guard("watching a gradient scaler")
_noting = guard("noting a new optimizer")


class _Past(NamedTuple):
    """An update that may turn out to have ended a step."""

    when: int
    flags: int


class _Other:
    """An optimizer that is not the anchor."""

    __slots__ = ("enough", "longest", "ordinal", "past")

    def __init__(self, ordinal: int, enough: int) -> None:
        self.ordinal = ordinal
        self.enough = enough
        self.past: list[_Past] = []  # its updates since the last one of the anchor
        self.longest = 0  # the most that there were when the anchor came back

    def alone(self) -> bool:
        """Does it seem to train by itself, if nothing more comes? Else its last updates are a round of a pair that steps in turn."""
        return len(self.past) >= max(NEW, 2 * (self.longest + 1))

    def came_back(self) -> None:
        """The anchor has updated again."""
        self.longest = max(self.longest, len(self.past))
        self.past.clear()


class Optimizers:
    """Those of this process, and whose update ends a step. Watches their steps."""

    def __init__(self) -> None:
        self.spans = [_span(0)]
        self.inner = core.Span(OPTIMIZER, PROBE, base=step.phases)  # of a step inside a backward pass
        self.forget()

    def forget(self) -> None:
        """No optimizer has stepped."""
        self.anchor: Callable[[], Any] = _nobody
        self.deposed: Callable[[], Any] = _nobody  # the anchor before, for as long as it may come back
        self.updates = 0  # of the anchor; on the quick way they are not counted
        self.alone = 0  # the last of these with no other one between them
        self.others: weakref.WeakKeyDictionary[Any, _Other] = weakref.WeakKeyDictionary()
        self.held: list[_Other] = []  # those with updates that are not written; by now their optimizers may be gone
        self.fresh: weakref.WeakSet[Any] = weakref.WeakSet()  # those that were made since the anchor stepped
        self.apart = False  # there was more than one training in this process, which may go on in turn
        self.scaling = False  # inside of a gradient scaler's step
        self.stepped = False  # an optimizer has stepped in it

    @_noting
    def made(self, optimizer: Any) -> None:
        """There is a new optimizer."""
        if self.anchor() is not None:
            optimizer_step.unlead()  # the anchor's next update has to be noticed
            self.fresh.add(optimizer)

    def begins(self, optimizer: Any) -> core.Span:
        """A step of an optimizer begins."""
        if not step.now.begun:
            step.begin()
        span = self.spans[0] if optimizer is self.anchor() else self._span(optimizer)
        span.start()
        return span

    def ends(self, optimizer: Any, token: core.Span | bool, error: BaseException | None) -> None:
        """It has ended."""
        span = self.spans[0] if isinstance(token, bool) else token
        if error is None:
            span.stop()
        else:
            span.__exit__(type(error), error, None)
        self.stepped = True
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
        """There was an update, which may have been skipped: end the step, if it was the anchor's."""
        if optimizer is not self.anchor():
            past = self._overtakes(optimizer, flags)
            if past is None:
                return
            self._crown(optimizer)
            if not step.now.explicit:
                step.end_late(past)
        self._count()
        if not step.now.explicit:
            step.end(flags)
        if self.alone >= NEW and step.now.all and self.deposed() is None and not self.scaling:
            ended = None if step.now.explicit else step.quick_end[0]
            optimizer_step.lead(optimizer, self.spans[0].start, self.spans[0].stop, ended)

    def _count(self) -> None:
        """The anchor has updated."""
        self.updates += 1
        self.alone += 1
        if self.updates >= OLD:
            self.deposed = _nobody
        if self.fresh:
            self.fresh.clear()
        if self.alone == 1:
            for other in self.held:
                other.came_back()
            self.held.clear()

    def _overtakes(self, optimizer: Any, flags: int) -> list[_Past] | None:
        """Does it become the anchor? Then its updates until now that ended steps, else None."""
        self.alone = 0
        if optimizer is self.deposed():
            return []
        if self.anchor() is None or optimizer in self.fresh:
            return self._own()
        other = self._other(optimizer)
        if len(other.past) + 1 >= other.enough:
            return other.past
        if not other.past:
            self.held.append(other)
        other.past.append(_Past(monotonic_ns(), flags))
        return None

    def _own(self) -> list[_Past]:
        """Updates that were held back, and that the anchor will not come back after: those that were ends of steps."""
        most = max(self.held, key=lambda other: len(other.past), default=None)
        return most.past if most is not None and most.alone() else []

    def settle(self) -> None:
        """The program ends: write what was held back."""
        if not step.now.explicit:
            step.end_late(self._own())
        self.disown()

    def disown(self) -> None:
        """What was held back is written; or this is a forked child, and that is its parent's."""
        for other in self.held:
            other.past.clear()
        self.held.clear()

    def _crown(self, optimizer: Any) -> None:
        """It is the anchor from now on."""
        anchor, known = self.anchor(), self.others.pop(optimizer, None)
        back = optimizer is self.deposed()
        self.apart |= optimizer in self.fresh or (known is not None and known.enough == OLD and not back)
        self.deposed = _nobody
        if anchor is not None:
            self.others[anchor] = _Other(len(self.others) + 1, NEW if self.apart else OLD)
            if not self.apart and not back:
                self.deposed = weakref.ref(anchor)
        self.anchor = weakref.ref(optimizer, _gone)
        self.updates = 0

    def _other(self, optimizer: Any) -> _Other:
        known = self.others.get(optimizer)
        if known is None:
            enough = NEW if self.updates >= NEW else OLD
            known = self.others[optimizer] = _Other(len(self.others) + 1, enough)
        return known

    def _span(self, optimizer: Any) -> core.Span:
        """The span of an optimizer that is not the anchor; that of the anchor, if it will be."""
        optimizer_step.unlead()
        leads = self.anchor() is None or optimizer in self.fresh or optimizer is self.deposed()
        ordinal = 0 if leads else self._other(optimizer).ordinal
        while len(self.spans) <= ordinal:
            self.spans.append(_span(len(self.spans)))
        return self.spans[ordinal]


def _span(ordinal: int) -> core.Span:
    return core.Span(OPTIMIZER, PROBE, key=ordinal, base=step.phases)


def _nobody() -> None:
    return None


def _gone(_anchor: object) -> None:
    optimizer_step.unlead()


_optimizers = Optimizers()
_settling = guard("writing the last ends of steps")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_optimizers.disown)


def install(_settings: Settings) -> Callable[[], None]:
    """Record steps of optimizers, and end steps of training, until the returned function is called."""
    _optimizers.forget()
    optimizer_step.inside_backward = False
    undo = [optimizer_step.watch(_optimizers), scaler_step.lane(_scaling), optimizer_made.lane(_making)]
    undo.append(recorder.at_end(_settling(_optimizers.settle)))

    def leave() -> None:
        with _settling:
            _optimizers.settle()
        while undo:
            undo.pop()()
        _optimizers.forget()

    return leave


def updated_inside() -> None:
    """A backward pass has ended in which optimizers stepped: an update, if there is none outside of it."""
    if _optimizers.anchor() is None and not step.now.explicit:
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
