"""The span that users make: `sonde.span(name)`, a context manager, a decorator, and a pair of start and stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sonde.events.cores import core
from sonde.events.decorate import decorate

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Span(core.Span):
    """A named span: `with sonde.span("load"):`, or `@sonde.span("load")` on a function.

    One object can be entered any number of times at once: by recursion, threads and tasks.
    """

    __slots__ = ()

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Record each call of the function; a generator or coroutine over its real life."""
        return decorate(self, function)
