"""A point that is told only of outermost calls: not of those inside another, in a backward pass, or read by the compiler."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.engine import backward_test, compile_test

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.hooks.points import Link


class _Thread(threading.local):
    inside = False


class OutermostPoint(Point):
    """One patched function of torch whose calls may lie in each other."""

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What stands in the place of the function."""
        told, thread = self.around(original, link), _Thread()
        compiling, in_backward = compile_test(), backward_test()

        def call(*args: Any, **kwargs: Any) -> Any:
            # The compiler reads this function where it compiles a model: it must come to the original at once.
            if compiling() or thread.inside or in_backward():
                return original(*args, **kwargs)
            try:
                thread.inside = True
                return told(*args, **kwargs)
            finally:
                thread.inside = False

        return dressed(call, original)
