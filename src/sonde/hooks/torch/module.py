"""Outermost calls of modules: the model and the loss, seen at `torch.nn.Module.__call__`.

A subscriber gets the module as the first of the arguments. Not told: modules called by other modules, modules called
inside a backward pass (activation checkpointing computes parts of the model again there), and what torch.compile reads.
`model.forward(x)` does not pass here: then each child is outermost. A model that is compiled while there are subscribers is
compiled once more after the last has left; one that was compiled before is not.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.engine import backward_test, compile_test

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sonde.hooks.points import Link


class _Thread(threading.local):
    inside = False


_thread = _Thread()


class _ModulePoint(Point):
    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        told = self.around(original, link)
        compiling, in_backward = compile_test(), backward_test()

        def call(*args: Any, **kwargs: Any) -> Any:
            # The compiler reads this function where it compiles a model: it must come to the original at once.
            if compiling() or _thread.inside or in_backward():
                return original(*args, **kwargs)
            try:
                _thread.inside = True
                return told(*args, **kwargs)
            finally:
                _thread.inside = False

        return dressed(call, original)


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.nn.Module, "__call__")]


module_call = _ModulePoint(
    "torch.nn.Module.__call__", "to see the calls of models and losses", library="torch", find=_places
)
