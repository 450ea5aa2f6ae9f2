"""Functions that can be captured, at no cost while no trace runs. `capture/traceable.py` has the same in Python."""

from collections.abc import Callable
from typing import Any

class Traceable:
    """Calls `function` as if it stood there itself; while a trace runs, `handler(args, kwargs)` instead.

    It binds as a method, pickles by name, and has the attributes of the function beside its own.
    """

    def __init__(
        self, function: Callable[..., Any], handler: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., Any]: ...

def watch(on: bool, /) -> None:
    """Set whether calls go to their handlers."""
