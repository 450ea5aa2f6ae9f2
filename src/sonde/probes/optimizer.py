"""The probe of optimizers: their steps, and which of these end a step of training.

The anchor is the first optimizer that ever stepped: its update ends the step, those of others count inside of it. An
anchor that is gone, or steps no more while another one does (a second fit), leaves its place to that one. An update that a
gradient scaler skips ends a step with a flag. Where optimizers step inside the backward pass only, its end is the update.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.optimizer import optimizer_step, scaler_step
from sonde.probes import step
from sonde.store.probe import OPTIMIZER, PROBE, UPDATE_ABORTED, UPDATE_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

NEW = 2  # so many steps in a row make an optimizer the anchor that came when the anchor had stepped as often
OLD = 32  # and so many any other one

_watching = guard("watching a gradient scaler")


class _Other:
    """An optimizer that is not the anchor."""

    __slots__ = ("enough", "ordinal", "row")

    def __init__(self, ordinal: int, enough: int) -> None:
        self.ordinal = ordinal
        self.enough = enough
        self.row = 0  # steps since the last one of the anchor


class Optimizers:
    """Those of this process, and whose update ends a step. Watches their steps."""

    def __init__(self) -> None:
        self.spans = [_span(0)]
        self.forget()

    def forget(self) -> None:
        """No optimizer has stepped."""
        self.anchor: Callable[[], Any] = _nobody
        self.updates = 0  # of the anchor
        self.others: weakref.WeakKeyDictionary[Any, _Other] = weakref.WeakKeyDictionary()
        self.rivals = False  # one of them has stepped since the anchor did
        self.scaling = False  # inside of a gradient scaler's step
        self.stepped = False  # an optimizer has stepped in it

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

    def updated(self, optimizer: Any, flags: int) -> None:
        """There was an update, which may have been skipped: end the step, if it was the anchor's."""
        if not self._leads(optimizer):
            return
        if not step.now.explicit:
            step.end(flags)
        if self.updates >= NEW and step.now.all and not self.others and not self.scaling:
            ended = None if step.now.explicit else step.quick_end[0]
            optimizer_step.lead(optimizer, self.spans[0].start, self.spans[0].stop, ended)

    def _leads(self, optimizer: Any) -> bool:
        anchor = self.anchor()
        if optimizer is not anchor:
            if anchor is not None and not self._overtakes(optimizer):
                return False
            if anchor is not None:
                self._demote(anchor)
            self.others.pop(optimizer, None)
            self.anchor = weakref.ref(optimizer, _gone)
            self.updates = 0
        self.updates += 1
        if self.rivals:
            self.rivals = False
            for other in self.others.values():
                other.row = 0
        return True

    def _overtakes(self, optimizer: Any) -> bool:
        other = self._other(optimizer)
        other.row += 1
        self.rivals = True
        return other.row >= other.enough

    def _demote(self, anchor: Any) -> None:
        self.others[anchor] = _Other(len(self.others) + 1, OLD)

    def _other(self, optimizer: Any) -> _Other:
        known = self.others.get(optimizer)
        if known is None:
            enough = NEW if self.updates >= NEW else OLD
            known = self.others[optimizer] = _Other(len(self.others) + 1, enough)
        return known

    def _span(self, optimizer: Any) -> core.Span:
        """The span of an optimizer that is not the anchor; where there is no anchor, it will be."""
        optimizer_step.unlead()
        ordinal = 0 if self.anchor() is None else self._other(optimizer).ordinal
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


def install(_settings: Settings) -> Callable[[], None]:
    """Record steps of optimizers, and end steps of training, until the returned function is called."""
    _optimizers.forget()
    optimizer_step.inside_backward = False
    undo = [optimizer_step.watch(_optimizers), scaler_step.lane(_scaling)]

    def leave() -> None:
        while undo:
            undo.pop()()
        _optimizers.forget()

    return leave


def updated_inside() -> None:
    """A backward pass has ended in which optimizers stepped: an update, if there is none outside of it."""
    if _optimizers.anchor() is None and not step.now.explicit:
        step.end(0)


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
