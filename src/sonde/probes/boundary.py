"""`trace_step`: the explicit boundary of a step of training."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.probes import step as steps
from sonde.store.probe import PROBE, STEP, UPDATE_ABORTED, UPDATE_EXPLICIT
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_P = ParamSpec("_P")
_R = TypeVar("_R")

_watching = guard("watching an explicit step")
_span = core.Span(STEP, PROBE, level=ESSENTIAL, base=steps.phases)


class trace_step:  # noqa: N801  it is used like a function
    """A step of training: `with sonde.trace_step(model):` around what belongs to it, or as a decorator of a function.

    From the first one on, these blocks say where steps end, and updates of optimizers do not. `step` is the number of the
    step; without it steps are counted on. A block inside another one is a part of that step. A block that is left by an
    exception is an aborted step: it is marked, and not counted among the others. Harmless if nothing is recorded.
    """

    __slots__ = ("_model", "_open", "_step")

    def __init__(self, model: Any = None, *, step: int | None = None) -> None:
        """`model` is what is trained; it is left alone."""
        self._model = model
        self._step = step
        self._open: list[bool] = []  # for each entry: is it a step, or a part of one?

    def __enter__(self) -> Self:
        begun = False
        with _watching:
            now = steps.now
            if now.installed and not now.open:
                if not now.explicit:
                    optimizer_step.unlead()  # from now on its updates end nothing
                now.open = now.explicit = begun = True
                core.enter(_span, steps.enter(self._step))
        self._open.append(begun)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None:
        with _watching:
            if self._open.pop() and steps.now.open:  # else it is a part; or the recording has ended meanwhile
                steps.now.open = False
                core.leave(_span, None, kind)
                flags = UPDATE_EXPLICIT if kind is None else UPDATE_EXPLICIT | UPDATE_ABORTED
                if steps.now.all:
                    steps.quick_end[flags]()
                else:
                    steps.end(flags)

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Each call of the function is a step."""

        @wraps(function)
        def stepping(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with trace_step(self._model, step=self._step):
                return function(*args, **kwargs)

        return stepping
