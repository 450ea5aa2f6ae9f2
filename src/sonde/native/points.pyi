"""What stands in the place of torch's own functions, and must cost next to nothing. Each part does in C what Python code does too:
`hooks/torch/outermost.py` for `Outermost`, and for a fast path the function that it is given as `slow`, which also does all that is not plain.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

class Outermost:
    """Calls `function` as if it stood there itself; for outermost calls in a thread, what `subscribe` or `fast_path` named.

    Not while torch compiles (`compiler[flag]` is true), nor inside a backward pass (`task()` is not -1; None: there too). Gates
    with the same `number`, from 0 to 63, count as one. It binds as a method, pickles by name, and has the attributes of the
    function beside its own.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compiler: dict[str, Any],
        flag: str,
        task: Callable[[], int] | None,
        number: int,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., Any]: ...
    def subscribe(self, subscribed: Callable[..., Any], /) -> None:
        """Set the function called for outermost calls."""
    def fast_path(self, fast: Callable[..., Any] | None, /) -> None:
        """Say which function is called instead of that; None: none."""
    def replace(self, replaced: Callable[..., Any] | None, /) -> None:
        """Say which function is called in the place of `function` for calls inside others; None: `function` itself."""

class Block:
    """The block around a step of training: what `blocks` says happens where it is entered and left."""

    def __new__(cls, model: Any = None, *, step: int | None = None) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

Function: TypeAlias = Callable[..., Any]

def collecting(spans: tuple[Any, ...], /) -> Callable[[str, dict[str, int]], None]:
    """What records collections of garbage as one of `gc.callbacks`, with a span for each generation but 0."""

def forward(
    slow: Function,
    /,
    *,
    timed: tuple[Function, ...],  # what is called, by the bits of the call: FORWARD_* of `store/probe.py`
    gradients: Callable[[], bool],  # are gradients computed?
    losses: type,  # the class of losses
    learned: dict[int, None],  # the addresses of modules that were called in training and with gradients
) -> Function:
    """The fast path for module calls."""

def backward(
    slow: Function,
    /,
    *,
    timed: Function,  # the backward pass
    tensor: type,  # the class of tensors
    write: Callable[[Any, float], object],  # writes the loss,
    span: Any,  # as one of this span
    unusual: Callable[[bool], None],  # called after a pass in which something unusual was seen: has it ended well?
    scaling: tuple[str, ...],  # the names of operations after which the loss is left to `slow`
) -> Function:
    """The fast path of backward passes."""

def begins(
    slow: Function,
    /,
    *,
    compiler: dict[str, Any],  # where the compiler's flag is,
    flag: str,  # and its name
    task: Callable[[], int],  # which backward pass is under way; -1: none
    called: list[
        Callable[..., Any] | None
    ],  # for the leader: at the begin, at the end, with it when it has stepped, after it (None: nothing)
) -> Function:
    """The fast path of the begin of an optimizer's step."""

def ends(
    slow: Function,
    /,
    *,
    compiler: dict[str, Any],
    flag: str,
    task: Callable[[], int],
    called: list[Callable[..., Any] | None],
) -> Function:
    """The fast path of the end of an optimizer's step, with the same arguments."""

def stepped(slow: Function, /, *, seen: list[object], listeners: list[Any]) -> Function:
    """The fast path of a look at an optimizer that has stepped: nothing, if all rates are those `seen` and nobody listens."""

def ended(slow: Function, /, *, advance: Callable[[Any], bool], span: Any, pause: int) -> Function:
    """The fast path of the end of a step of training: `advance(span)` writes it; `slow` is called at most once in `pause` ns."""

def replaced(slow: Function, /, *, calls: dict[int, Function], compiler: dict[str, Any], flag: str) -> Function:
    """What calls other functions for some modules, by address; not while torch compiles (`compiler[flag]` is true)."""

def blocks(
    *,
    state: list[
        Any
    ],  # its only item is False outside of a block and True inside; any other value: the slow functions are called
    enter: Callable[[Any], object],  # of the event core
    leave: Callable[..., object],
    span: Any,
    ended: Callable[[], Any],  # a step has ended,
    aborted: Callable[[], Any],  # or was left by an exception
    slow_enter: Callable[[int | None], bool],  # (step): has a step begun?
    slow_exit: Callable[[type[BaseException] | None], None],  # (kind of the exception)
) -> None:
    """Set what blocks do."""

def exchange(capsule: Any, copied_late: Callable[[Any], bool], /) -> None:
    """Say how numbers of tensors are read: torch's exchange of DLPack (None: it has none, and is asked for each), and what tells
    that a tensor is copied on write.
    """

def passes(on: bool, /) -> None:
    """Say whether forward and backward passes may take their fast paths, where the plain case is at hand."""

def ready(on: bool, /) -> None:
    """Say whether the plain case is at hand: training goes on, and nothing unusual was seen."""

def mute(on: bool, /) -> None:
    """Set whether module calls of this thread skip the fast path."""

def lead(optimizer: Any, /) -> None:
    """Say which optimizer's steps are plain; None: no one's. It is not kept alive."""

def take() -> Any:
    """The optimizer whose plain step runs in this thread, which is a plain one no more; None: none."""
