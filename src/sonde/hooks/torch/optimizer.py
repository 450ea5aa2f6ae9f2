"""Steps of optimizers, through the global hooks that torch has for it, and of gradient scalers, which may skip them.

A subscriber of `optimizer_step` gets the optimizer as the first of the arguments; the result is not known. Not seen: a
step inside another one (`ZeroRedundancyOptimizer`). Steps inside a backward pass (one optimizer per parameter) are seen only by
the one who watches, and only where the thread that asked for the pass takes them: torch has threads of its own for devices. Of a
step that raises has no end in torch: `after` comes with a `StepAborted`, when that is noticed, at the latest when the
subscriber leaves. An optimizer that is no `torch.optim.Optimizer` is not seen. `optimizer_step.watch` is the fast path, for a
probe that sees every step of a long run.

`scaler_step` is `torch.amp.GradScaler.step(scaler, optimizer)`: after an overflow there is no `optimizer_step` in it.
`scaler_scale` is `GradScaler.scale(scaler, outputs)`, which gives the loss that goes into the backward pass. `optimizer_made`
is `torch.optim.Optimizer.__init__`.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from sonde.guard import guard
from sonde.hooks.points import Point, Subscriber, notifying
from sonde.hooks.torch import private
from sonde.hooks.torch.private import compile_flag, graph_task
from sonde.hooks.torch.status import backward_test, compile_test, native, readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType

    from sonde.hooks.points import Arguments, Keywords


class StepAborted(Exception):
    """Stands for the exception of a step, of which torch says nothing. Never raised."""


class _RunningStep:
    """A step that has begun."""

    __slots__ = ("begun", "optimizer", "token")

    def __init__(self, optimizer: Any, begun: list[tuple[Subscriber, object]] | None, token: Any) -> None:
        self.optimizer = optimizer
        self.begun = begun  # None: inside another one, and not seen
        self.token = token  # of the one who watches


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[_RunningStep] = []
        self.inside: list[Any] = []  # optimizers that are at a step inside a backward pass: one, and those inside of it


_thread = _Thread()


class StepFastPath(Protocol):
    """A fast path of steps: guarded like a subscriber, but in the open, and without arguments."""

    def begins(self, optimizer: Any, /) -> object:
        """A step begins. What is returned comes back in `ends`."""

    def ends(self, optimizer: Any, token: Any, error: BaseException | None, /) -> None:
        """The step has ended."""

    def begins_inside(self) -> None:
        """A step inside a backward pass begins."""

    def ends_inside(self, error: BaseException | None) -> None:
        """It has ended."""


_guarded = guard("following steps of optimizers")


class _OptimizerPoint(Point):
    """Has hooks instead of a patch; its subscribers do not see the difference."""

    step_path: StepFastPath | None = None
    _hooks: tuple[Any, Any] | None = None  # for good: compiled code may hold on to them
    _fast: list[Callable[..., Any] | None] = []  # noqa: RUF012  there is one point; what is called for plain steps
    inside_backward = False  # a step was taken inside a backward pass; whoever reads it resets it
    _engine: CodeType | None = None  # of the function in torch that runs a backward pass
    _code: CodeType | None = None  # of the function in torch that calls the hooks, and the step between them

    def send_steps_to(self, step_path: StepFastPath) -> Callable[[], None]:
        """Send steps that way, until the returned function is called."""

        def change(who: StepFastPath | None) -> None:
            self.step_path = who
            self.unlead()

        return self._joined(lambda: change(step_path), lambda: change(None))

    def lead(
        self,
        optimizer: Any,
        start: Callable[[], Any],
        stop: Callable[[], Any],
        stepped: Callable[[Any], Any] | None,
        ended: Callable[[], Any] | None,
    ) -> None:
        """Let the steps of this optimizer be plain: only these functions are called for them, until `unlead`.

        A step of it that is left by an exception, and whatever else is not plain, still reaches the fast path, with
        True as the token. The optimizer is not kept alive.
        """
        if native is not None and not self.subscribers:
            self._fast[:] = [start, stop, stepped, ended]
            native.lead(optimizer)

    def unlead(self) -> None:
        """Let no steps be plain any more."""
        if native is not None:
            native.lead(None)

    def _changed(self) -> None:
        self.unlead()

    def end_due(self) -> None:
        """End the steps that have begun in this thread and are not at work any more: they were left by an exception."""
        self._take()
        while _thread.open and not self._runs(_thread.open[-1].optimizer, sys._getframe(1)):
            self._abort(_thread.open.pop())

    def stepping(self) -> bool:
        """Has a step begun in this thread whose end was not seen?"""
        self._take()
        return bool(_thread.open)

    def _take(self) -> None:
        """A plain step is one no more."""
        taken = None if native is None else native.take()
        if taken is not None:
            _thread.open.append(_RunningStep(taken, [], True))

    def _arrived(self, _torch: ModuleType) -> None:
        hooks = sys.modules["torch.optim.optimizer"]
        if self._hooks is None:
            self._hooks = self._make_hooks()
        if native is not None:
            self._undo += [readable(hook, hook.__wrapped__) for hook in self._hooks]
        self._undo.append(self._abort_all)
        self._undo.append(hooks.register_optimizer_step_pre_hook(self._hooks[0]).remove)
        self._undo.append(hooks.register_optimizer_step_post_hook(self._hooks[1]).remove)

    def _make_hooks(self) -> tuple[Any, Any]:
        compiling, in_backward = compile_test(), backward_test()
        self._engine = private.run_backward_code()

        def step_begins(optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
            if compiling() or notifying():
                return
            if in_backward():
                self.inside_backward = True
                if native is not None:
                    native.ready(False)
                with _guarded:
                    self._begins_inside(optimizer)
                return
            with _guarded:
                self._begins(optimizer, args, kwargs)

        def step_ends(optimizer: Any, _args: Arguments, _kwargs: Keywords) -> None:
            if not compiling() and not notifying():
                with _guarded:
                    if in_backward():
                        self._ends_inside(optimizer)
                    else:
                        self._ends(optimizer)

        if native is None:
            return step_begins, step_ends
        compiler, flag = compile_flag()
        parts = {"compiler": compiler, "flag": flag, "task": graph_task(), "called": self._fast}
        return native.begins(step_begins, **parts), native.ends(step_ends, **parts)

    def _begins_inside(self, optimizer: Any) -> None:
        caller = frame = sys._getframe(2).f_back
        while frame is not None and frame.f_code is not self._engine:
            frame = frame.f_back
        if frame is None:
            return
        inside = _thread.inside
        if inside:
            self._code = sys._getframe(2).f_code
            if not self._runs(inside[-1], caller):
                self.leave_inside()
        inside.append(optimizer)
        if len(inside) == 1 and self.step_path is not None:
            self.step_path.begins_inside()

    def _ends_inside(self, optimizer: Any) -> None:
        inside = _thread.inside
        if inside and inside[-1] is optimizer:
            inside.pop()
            if not inside and self.step_path is not None:
                self.step_path.ends_inside(None)

    def leave_inside(self) -> None:
        """A backward pass has ended: a step inside of it whose end was not seen was left by an exception."""
        if _thread.inside:
            _thread.inside.clear()
            if self.step_path is not None:
                self.step_path.ends_inside(StepAborted("the step ended with an exception"))

    def _begins(self, optimizer: Any, args: Arguments, kwargs: Keywords) -> None:
        self._take()
        steps = _thread.open
        if steps or self._code is None:
            hook = sys._getframe(1)
            self._code = hook.f_back.f_code if hook.f_back else None
            while steps and not self._runs(steps[-1].optimizer, hook.f_back and hook.f_back.f_back):
                self._abort(steps.pop())
        if steps:
            steps.append(_RunningStep(optimizer, None, None))
            return
        begun: list[tuple[Subscriber, object]] = []
        steps.append(_RunningStep(optimizer, begun, self.step_path and self.step_path.begins(optimizer)))
        if native is not None:
            native.mute(True)  # a module that is called now is in a closure; or this step was left by an exception
        if self.subscribers:
            self.begin(begun, args, kwargs)

    def _ends(self, optimizer: Any) -> None:
        self._take()
        steps = _thread.open
        if not steps or (len(steps) > 1 and not any(step.optimizer is optimizer for step in steps)):
            return  # it had begun before the first subscriber came
        while steps and steps[-1].optimizer is not optimizer:
            self._abort(steps.pop())
        if steps:
            self._over(steps.pop(), None)

    def _abort(self, step: _RunningStep) -> None:
        self._over(step, StepAborted("the step ended with an exception"))

    def _over(self, step: _RunningStep, error: StepAborted | None) -> None:
        if step.begun is None:
            return
        if native is not None:
            native.mute(False)
        if step.begun:
            self.end(step.begun, None, error)
        if step.token is not None and self.step_path is not None:
            self.step_path.ends(step.optimizer, step.token, error)

    def _abort_all(self) -> None:
        self._take()
        while _thread.open:
            self._abort(_thread.open.pop())

    def _runs(self, optimizer: Any, frame: FrameType | None) -> bool:
        """Is this optimizer's step still at work in this frame or below it?"""
        while frame is not None:
            if frame.f_code is self._code and frame.f_locals.get("self") is optimizer:
                return True
            frame = frame.f_back
        return False


def _scaler_place(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.amp.GradScaler, "step")]


def _scale_place(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.amp.GradScaler, "scale")]


def _made_place(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.optim.Optimizer, "__init__")]


optimizer_step = _OptimizerPoint("torch.optim.Optimizer.step", "to see the steps of optimizers", library="torch")
scaler_step = Point("torch.amp.GradScaler.step", "to see steps that are skipped", library="torch", find=_scaler_place)
scaler_scale = Point(
    "torch.amp.GradScaler.scale", "to know a loss without its scale", library="torch", find=_scale_place
)
optimizer_made = Point("torch.optim.Optimizer.__init__", "to know new optimizers", library="torch", find=_made_place)
