"""Functions that can be captured: while no trace runs, calling one costs a test of a flag."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events.wraps import dress
from sonde.native import traceable as _native

if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]

native: Any = _native  # None: C was not built


class Switch:
    """Does a trace run in this process?"""

    on = False


def watch(on: bool) -> None:
    """Say whether calls go to their handlers."""
    Switch.on = on
    if native is not None:
        native.watch(on)


def traceable(function: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    """Something that is called like `function`, and calls `handler(args, kwargs)` instead while a trace runs."""
    torch = sys.modules.get("torch")
    if torch is not None and getattr(function, "__name__", "") == "forward":
        made = _readable(function, handler, torch.compiler.is_compiling)
    else:
        made = _plain(function, handler) if native is None else native.Traceable(function, handler)
    return dress(made, function)


def _plain(function: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    def passed(*args: Any, **kwargs: Any) -> Any:
        return handler(args, kwargs) if Switch.on else function(*args, **kwargs)

    return passed


def _readable(function: Callable[..., Any], handler: Handler, compiling: Callable[[], bool]) -> Callable[..., Any]:
    """For the forward of a model: torch.compile refuses one that is no Python function, and reads this one through."""

    def passed(*args: Any, **kwargs: Any) -> Any:
        return handler(args, kwargs) if Switch.on and not compiling() else function(*args, **kwargs)

    return passed
