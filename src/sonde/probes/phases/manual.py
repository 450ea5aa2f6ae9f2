"""Steps of programs that have no torch optimizer: hand-written updates, Keras.

A step ends at the last backward pass before the next training forward. Where no model is called at all, each backward pass ends one.
That is over as soon as a torch optimizer is known, a `trace_step` is entered, or the program sets the step itself.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from time import monotonic_ns

from sonde.events import core, recorder
from sonde.guard import guard
from sonde.probes import step
from sonde.store.probe import MANUAL, PROBE, UPDATE_BACKWARD
from sonde.store.record import ESSENTIAL

_ending = guard("ending a step without an optimizer")


class _Manual:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No backward pass has ended."""
        self.ended_ns = 0  # when the last backward pass ended; 0: none since the step began
        self.number: int | None = None  # of the step, by our own count
        self.models = False  # a model was called
        self.searched = False  # for optimizers that were made before the recording began
        self.marked = False  # the recording says that backward passes end steps


_manual = _Manual()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_manual.forget)  # what has ended is the parent's


def install() -> Callable[[], None]:
    """Be ready; returns what writes the end of the last step and forgets everything."""
    _manual.forget()
    undo = recorder.at_end(_end)

    def leave() -> None:
        undo()
        _end()
        _manual.forget()

    return leave


def forward_begins(*, trains: bool) -> None:
    """A model is called: with training mode and gradients, or not."""
    _manual.models = True
    if trains and _manual.ended_ns:
        _end()


def backward_begins() -> None:
    """A backward pass begins."""
    if _manual.ended_ns and not _manual.models:
        _end()


def backward_ended() -> None:
    """A backward pass has ended."""
    if _manual.number is None:
        _manual.number = core.get_context()[0]
    _manual.ended_ns = monotonic_ns()


@_ending
def _end() -> None:
    """End the step at its last backward pass, if backward passes end steps."""
    when, first = _manual.ended_ns, _manual.number
    _manual.ended_ns, _manual.number = 0, None
    if not when or not step.now.manual:
        return
    if core.get_context()[0] != first or _has_optimizer():
        step.leave_manual()
        return
    if not _manual.marked:
        core.mark(MANUAL, PROBE, key=0, level=ESSENTIAL)
        _manual.marked = True
    step.end(UPDATE_BACKWARD, when)


def _has_optimizer() -> bool:
    """Is there a torch optimizer that was made before the recording began? Searched for once."""
    if _manual.searched:
        return False
    _manual.searched = True
    kind = sys.modules["torch"].optim.Optimizer
    return any(issubclass(type(one), kind) for one in gc.get_objects())
