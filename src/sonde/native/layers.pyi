"""Calls of layers and backward passes through them, in C. Where this was not built, `probes/layers/record.py` records forward calls only."""

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

def prepare(
    *,
    enter: Function,  # of the event core, as the next two
    leave: Function,
    cancel: Function,
    number: Callable[[], int],  # autograd's counter
    task: Callable[[], int],  # the backward pass that is under way
    queue: Callable[[Callable[[], None]], None],  # calls a function at the end of that
    phases: Any,  # the switch of all phases: `on`
    tensor: type,
    found: Callable[[Any], tuple[Any, ...]],  # the tensors of a result
    search: Function,  # (nodes, first number, input): the lowest node, and where it is
    demote: Callable[[Any], None],  # a layer is none, for it calls one
    describe: Callable[[Any], None],  # a layer was called for the first time
    blame: Callable[[BaseException], object],  # what is called for a failure of ours
) -> None:
    """Set the parts of torch and Sonde to use."""

def mute(on: bool, /) -> None:
    """Set whether calls of this thread are ignored."""

def finish(error: type[BaseException] | None, /) -> None:
    """End the backward pass of this thread; the argument is the exception's type or None."""

def ended() -> None:
    """A backward pass of this thread has ended."""
