"""Steps of optimizers, through the global hooks that torch has for it, and of gradient scalers, which may skip them.

A subscriber of `optimizer_step` gets the optimizer as the first of the arguments; the result is not known. Not told: a
step inside another one (`ZeroRedundancyOptimizer`), and steps inside a backward pass (one optimizer per parameter). Of a
step that raises torch tells no end: `after` comes with a `StepAborted`, when that is noticed, at the latest when the
subscriber leaves. An optimizer that is no `torch.optim.Optimizer` is not seen.

`scaler_step` is `torch.amp.GradScaler.step(scaler, optimizer)`: after an overflow there is no `optimizer_step` in it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.guard import guard
from sonde.hooks.points import Point, Subscriber, telling
from sonde.hooks.torch.engine import backward_test, compile_test

if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType

    from sonde.hooks.points import Arguments, Keywords


class StepAborted(Exception):
    """Stands for the exception of a step, of which torch tells nothing. Never raised."""


class _Step(NamedTuple):
    """A step that has begun."""

    optimizer: Any
    told: list[tuple[Subscriber, object]] | None  # None: inside another one, and not told


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[_Step] = []


_thread = _Thread()


class _OptimizerPoint(Point):
    """Has hooks instead of a patch; its subscribers do not see the difference."""

    def _arrived(self, _torch: ModuleType) -> None:
        hooks = sys.modules["torch.optim.optimizer"]
        compiling, in_backward = compile_test(), backward_test()

        def step_begins(optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
            if not compiling() and not in_backward() and not telling():
                with guard("following steps of optimizers"):
                    self._begins(optimizer, args, kwargs)

        def step_ends(optimizer: Any, _args: Arguments, _kwargs: Keywords) -> None:
            if not compiling() and not in_backward() and not telling():
                with guard("following steps of optimizers"):
                    self._ends(optimizer)

        self._undo.append(self._abort_all)
        self._undo.append(hooks.register_optimizer_step_pre_hook(step_begins).remove)
        self._undo.append(hooks.register_optimizer_step_post_hook(step_ends).remove)

    def _begins(self, optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
        steps = _thread.open
        while steps and not _runs(steps[-1].optimizer, sys._getframe(1)):
            self._abort(steps.pop())
        told: list[tuple[Subscriber, object]] | None = None if steps else []
        steps.append(_Step(optimizer, told))
        if told is not None:
            self.begin(told, args, kwargs)

    def _ends(self, optimizer: Any) -> None:
        steps = _thread.open
        if not any(step.optimizer is optimizer for step in steps):
            return  # it had begun before the first subscriber came
        while steps[-1].optimizer is not optimizer:
            self._abort(steps.pop())
        told = steps.pop().told
        if told is not None:
            self.end(told, None, None)

    def _abort(self, step: _Step) -> None:
        if step.told is not None:
            self.end(step.told, None, StepAborted("the step ended with an exception"))

    def _abort_all(self) -> None:
        while _thread.open:
            self._abort(_thread.open.pop())


def _runs(optimizer: Any, hook: FrameType) -> bool:
    """Is this optimizer's step still at work below? `hook` is the frame of a hook, which a step calls."""
    code: CodeType | None = hook.f_back.f_code if hook.f_back else None
    frame = hook.f_back and hook.f_back.f_back
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def _scaler_place(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.amp.GradScaler, "step")]


optimizer_step = _OptimizerPoint("torch.optim.Optimizer.step", "to see the steps of optimizers", library="torch")
scaler_step = Point("torch.amp.GradScaler.step", "to see steps that are skipped", library="torch", find=_scaler_place)
