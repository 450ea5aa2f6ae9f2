"""What stands in the way of torch's own calls, and must cost next to nothing. Each part does in C what Python code does too:
`torch/outermost.py` for `Gate`, and for a lane the function that it is given as `slow`, which also does all that is not plain.
"""

from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias

class Gate:
    """Calls `function` as if it stood there itself; for outermost calls in a thread, what `tell` or `route` named.

    Not while torch compiles (`compiler.flag` is true), nor inside a backward pass (`task()` is not -1; None: there too). Gates
    with the same `number`, from 0 to 63, count as one. It binds as a method, pickles by name, and has the attributes of the
    function beside its own.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compiler: ModuleType,
        flag: str,
        task: Callable[[], int] | None,
        number: int,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., Any]: ...
    def tell(self, told: Callable[..., Any], /) -> None:
        """Say which function is called for outermost calls."""
    def route(self, quick: Callable[..., Any] | None, /) -> None:
        """Say which function is called instead of that; None: none."""
    def reach(self, inner: Callable[..., Any] | None, /) -> None:
        """Say which function is called in the place of `function` for calls inside others; None: `function` itself."""

class Block:
    """The block around a step of training: what `blocks` says happens where it is entered and left."""

    def __new__(cls, model: Any = None, *, step: int | None = None) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

Function: TypeAlias = Callable[..., Any]

def forward(slow: Function, parts: tuple[tuple[Function, ...], Callable[[], bool], type, str], /) -> Function:
    """A lane for calls of modules: eight functions by state, the test of gradients, the class of losses, "training"."""

def backward(
    slow: Function, parts: tuple[Function, type, Callable[[Any, float], None], Any, str, str, Callable[[], None]], /
) -> Function:
    """A lane for backward passes.

    Its parts: the function, the class of tensors, what writes the loss, its span, "is_cpu", "item", and what is called after
    a pass in which something unusual was seen.
    """

def begins(slow: Function, parts: tuple[Callable[[], int], ModuleType, str, list[Callable[[], Any]]], /) -> Function:
    """A lane for the begin of an optimizer's step.

    Its parts: which backward pass is under way, the compiler, its flag, and a list of what is called for the leader: at the begin,
    at the end, and after it (None: nothing).
    """

def ends(slow: Function, parts: tuple[Callable[[], int], ModuleType, str, list[Callable[[], Any]]], /) -> Function:
    """A lane for the end of an optimizer's step, with the same parts."""

def ended(slow: Function, parts: tuple[Callable[[Any], bool], Any, int], /) -> Function:
    """A lane for the end of a step of training: what writes it, its span; `slow` is called at most once in so many ns."""

def followed(slow: Function, parts: tuple[dict[int, Function], ModuleType, str], /) -> Function:
    """A lane for calls of some modules: the functions that are called for them, by address; the compiler, its flag."""

def blocks(parts: tuple[Any, ...], /) -> None:
    """Say what blocks do.

    The parts: an object, and its attribute that is False outside of a block and True inside (any other value: the slow way);
    what enters a span, what leaves one, the span; what is called when a step has ended, and when it was left by an exception;
    `slow(step)`, which tells whether a step has begun, and `slow(kind)` for its end.
    """

def ready(on: bool, /) -> None:
    """Say whether the plain case is at hand: training goes on, and nothing unusual was seen."""

def mute(on: bool, /) -> None:
    """Say whether modules that are called in this thread go the slow way."""

def lead(optimizer: Any, /) -> None:
    """Say which optimizer's steps are plain; None: no one's. It is not kept alive: take it back before it is gone."""

def take() -> Any:
    """The optimizer whose plain step runs in this thread, which is a plain one no more; None: none."""
