"""Calls of layers and backward passes through them, in C. Where this was not built, `layers.py` records forward calls only."""

from collections.abc import Callable
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]

def recorded(
    layer: object,
    original: Function,
    forward: object | None,
    backward: object | None,
    measured: bool,
    gradients: bool,
    tentative: bool,
    /,
) -> Function:
    """What is called in the place of `original` for a layer: it records the call, and hooks what the call adds to the graph.

    `forward`, `backward`: its spans. `measured`, `gradients`: bytes of results and gradients are wanted. `tentative`: it is
    a layer unless it calls one.
    """

def shadow(original: Function, /) -> Function:
    """What is called for a module that is not recorded: the one that calls it is no layer."""

def prepare(parts: tuple[Any, ...], /) -> None:
    """Take what is needed: `enter`, `leave` and `cancel` of the core; autograd's counter, the pass that is under way, and what
    queues a function for its end; the switch of all phases; the class of tensors; and functions in Python: the tensors of a
    result, the search for the lowest node, what demotes and describes a layer, and what takes the blame for a failure.
    """

def mute(on: bool, /) -> None:
    """Say whether what this thread calls now is not recorded."""

def finish(error: type[BaseException] | None, /) -> None:
    """A backward pass of this thread has ended, perhaps by an exception of this type."""

def ended() -> None:
    """A backward pass of this thread has ended."""
