"""Is this tensor finite? And the calls, gradients and backward passes of which that is asked, in C.

`nonfinite/fallback.py` watches less where this was not built.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]

class Call:
    """What is called in the place of `nn.Module.__call__` for a layer."""

    first: int  # nodes of autograd's graph that its last call has made have this number or a higher one,
    end: int  # and a lower one than this
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def look(tensor: object, /) -> int:
    """Bits of what is in it: 1 infinity, 2 NaN; -1: it cannot be read here."""

def look_into(value: object, /) -> int:
    """The same for plain containers of tensors and numbers."""

def watched(
    layer: object, original: Function, outs: tuple[Any, ...], ins: tuple[Any, ...], own: bool, hooks: object, /
) -> Call:
    """What is called in the place of `original` for a layer: it looks at the result, unless that is known to be finite.

    That is so of a container that gives what its last layer gave, if autograd counts nothing in between, and, while the dicts `hooks` are
    empty, of a layer whose input is what the last layer gave (`nonfinite/skip.py`).

    Where code of the program was at work, in the layer (`own`) or before it, it hooks the nodes on both sides of that, to
    look at gradients. `outs`, `ins`: the hooks for gradients of results and inputs, by the number of the output.
    """

def passing(original: Function, /) -> Function:
    """What is called in the place of a backward pass: it looks at the loss, and afterwards at the gradients of parameters."""

def hook(layer: object, side: int, output: int, /) -> Function:
    """A hook of a node that looks at a gradient. `side`: 0 for that of the result of a layer, 1 for that of its input. `output`: its number
    among those of the node.
    """

def prepare(
    *,
    tensor: type,
    parameter: type,
    exchange: Any,  # torch's capsule for DLPack; None: it has none
    copied_late: Callable[[Any], bool],  # is this tensor copied on write?
    number: Callable[[], int],  # autograd's counter
    tracing: Callable[[], Any],  # the state of a tracer; None: there is none
    found: Callable[[Any], tuple[Any, ...]],  # the tensors of a result
    look: Callable[[Any], int],  # the look at a tensor that is not plain
    output: Function,  # what is called for an output that is not finite,
    gradient: Function,  # a gradient,
    loss: Function,  # a loss,
    ended: Function,  # the end of a pass,
    later: Callable[[int], object],  # and a pass later on
    blame: Callable[[BaseException], object],  # what is called for a failure of ours
    calm: frozenset[str],  # the names of nodes that make nothing of a gradient
) -> None:
    """Set the parts of torch and of the watch to use."""

def turn(mode: int, /) -> None:
    """0: off. 1: on. 2: only losses are looked at."""

def renew() -> None:
    """A batch has come: what this thread calls now comes after no layer."""

def suspect(on: bool, /) -> None:
    """Set whether the end of each backward pass is reported."""

def weigh(weights: list[Any], /) -> None:
    """The weak references to parameters whose gradients are looked at."""

def at() -> tuple[Any, Any, int, Any]:
    """The layer whose call is open in this thread; the one that ended last, and how far autograd had counted then; what the
    backward pass that runs began with.
    """
