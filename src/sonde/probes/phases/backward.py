"""The probe of backward passes, and of the loss that goes into them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch import private
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.optimizer import optimizer_step, scaler_scale
from sonde.hooks.torch.status import native
from sonde.probes import step
from sonde.probes.phases import loss, manual, optimizer
from sonde.store.probe import BACKWARD, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

_watching = guard("watching a backward pass")


def install(_settings: Settings) -> Callable[[], None]:
    """Record backward passes until the returned function is called."""
    undo = [manual.install(), scaler_scale.fast_path(_scaling), backward.fast_path(_fast_path)]

    def renew() -> None:
        backward.hold()  # the patch stays
        undo.pop()()
        undo.append(backward.fast_path(_fast_path))
        backward.release()

    def leave() -> None:
        loss.at_change(lambda: None)
        while undo:
            undo.pop()()
        loss.collect()

    loss.at_change(renew)

    return leave


def _fast_path(original: Callable[..., Any]) -> Callable[..., Any]:
    timed = core.Span(BACKWARD, PROBE, key=0, base=step.phases).wrap(original)
    now, phases = step.now, step.phases

    def call(*args: Any, **kwargs: Any) -> Any:
        with _watching:
            if not now.begun:
                step.begin()
            if now.manual:
                manual.backward_begins()
            if phases.on or loss.wanted():
                loss.note(args[0] if args else kwargs.get("tensors"))
        well = False
        try:
            result = timed(*args, **kwargs)
            well = True
        finally:
            if optimizer_step.inside_backward:
                _unusual(well)
            elif well and now.manual:
                _ended()
        return result

    if native is None:
        return call
    torch = sys.modules["torch"]
    native.exchange(private.exchange(), private.copy_on_write())
    made = native.backward(
        call,
        timed=timed,
        tensor=torch.Tensor,
        write=loss.writer(),
        span=loss.span,
        unusual=_unusual,
        scaling=loss.SCALING,
    )
    return cast("Callable[..., Any]", made)


_ended = guard("watching a backward pass")(manual.backward_ended)


@guard("watching a backward pass")
def _unusual(well: bool) -> None:
    """A backward pass has ended in which optimizers have stepped; or was left by an exception."""
    if optimizer_step.inside_backward:
        optimizer_step.inside_backward = False
        optimizer_step.leave_inside()
        if well:
            optimizer.updated_inside()


def _scaling(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(scaler: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, outputs, *args, **kwargs)
        with _watching:
            loss.scaled(result, outputs)
            if native is not None:
                native.passes(False)
        return result

    return scale
