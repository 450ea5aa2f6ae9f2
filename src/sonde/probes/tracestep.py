"""`trace_step`: the explicit boundary of a step of training."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from sonde.errors import WrapRefused
from sonde.events import core
from sonde.events.decorate import ASYNC_GENERATOR, COROUTINE, GENERATOR, flags_of
from sonde.guard import guard
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.hooks.torch.status import native
from sonde.probes import step as steps
from sonde.store.probe import PROBE, STEP, UPDATE_ABORTED, UPDATE_EXPLICIT
from sonde.store.record import ESSENTIAL

_P = ParamSpec("_P")
_R = TypeVar("_R")

_span = core.Span(STEP, PROBE, level=ESSENTIAL, base=steps.phases)
_FLAGS = (UPDATE_EXPLICIT, UPDATE_EXPLICIT | UPDATE_ABORTED)


@guard("watching an explicit step", default=False)
def begin(step: int | None) -> bool:
    """A block is entered. Is it a step? Else it is a part of one, or nothing is recorded."""
    now = steps.now
    if not now.installed or now.block[0]:
        return False
    if not now.explicit:
        optimizer_step.unlead()  # from now on its updates end nothing
        steps.leave_manual()
    now.block[0] = True
    steps.enter(step)
    core.enter(_span)
    return True


@guard("watching an explicit step")
def end(kind: type[BaseException] | None) -> None:
    """A block that is a step is left, perhaps by an exception of this kind."""
    if steps.now.block[0]:  # else the recording has ended meanwhile
        steps.now.block[0] = False
        core.leave(_span, None, kind)
        flags = _FLAGS[kind is not None]
        if steps.now.all:
            steps.quick_end[flags]()
        else:
            steps.end(flags)


class Block:
    """What `trace_step` stands on. There is one in C too, with a fast path for what is plain."""

    __slots__ = ("_begun", "_step")

    def __init__(self, model: Any = None, *, step: int | None = None) -> None:  # noqa: ARG002  it is left alone
        self._step = step
        self._begun = 0  # a bit for each entry, the newest is the lowest: is it a step, or a part of one?

    def __enter__(self) -> Self:
        self._begun = self._begun << 1 | bool(begin(self._step))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None:
        begun = self._begun & 1
        self._begun >>= 1
        if begun:
            end(kind)


if TYPE_CHECKING or native is None:
    Fast = Block
else:
    Fast = native.Block
    PARTS = {
        "state": steps.now.block, "enter": core.enter, "leave": core.leave, "span": _span,
        "ended": steps.quick_end[_FLAGS[0]], "aborted": steps.quick_end[_FLAGS[1]], "slow_enter": begin, "slow_exit": end,
    }  # fmt: skip
    native.blocks(**PARTS)


class trace_step(Fast):  # noqa: N801  it is used like a function
    """A training step: `with sonde.trace_step(model):` around its code, or as a decorator.

    Once used, these blocks define where steps end, instead of optimizer updates. `step` is the step number; by default
    steps are counted. A nested block is part of the outer step. A block left by an exception is an aborted step: it is
    marked and not counted. `model` is the trained model; it is not changed. Does nothing if nothing is being recorded.
    """

    __slots__ = ()

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Each call of the function is a step; that of a coroutine or a generator lasts until its end."""
        flags = flags_of(function)
        if flags & ASYNC_GENERATOR:
            raise WrapRefused(
                "trace_step() cannot decorate an asynchronous generator. Use `with sonde.trace_step():` around each "
                "step in the loop instead."
            )
        around = next((one for bit, one in _AROUND if flags & bit), _around_call)
        return cast("Callable[_P, _R]", wraps(function)(around(lambda: type(self)(step=self._step), function)))


def _around_call(block: Callable[[], trace_step], function: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return stepping


def _around_coroutine(block: Callable[[], trace_step], function: Callable[..., Any]) -> Callable[..., Any]:
    async def stepping(*args: Any, **kwargs: Any) -> Any:
        with block():
            return await function(*args, **kwargs)

    return stepping


def _around_generator(block: Callable[[], trace_step], function: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*args: Any, **kwargs: Any) -> Any:
        with block():
            return (yield from function(*args, **kwargs))

    return stepping


_AROUND = ((COROUTINE, _around_coroutine), (GENERATOR, _around_generator))
