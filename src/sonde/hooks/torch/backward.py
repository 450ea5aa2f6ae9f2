"""Backward passes: `Tensor.backward` and `torch.autograd.backward`, which the former goes through.

A subscriber gets the arguments of the latter: what is differentiated comes first. Not told: a pass inside another one
(activation checkpointing), and `torch.autograd.grad`, which changes no `.grad`.
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


class _BackwardPoint(Point):
    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        told = self.around(original, link)
        compiling, in_backward = compile_test(), backward_test()

        def call(*args: Any, **kwargs: Any) -> Any:
            # A tensor with its own __torch_function__ comes here twice; a pass inside another one is in the engine.
            if compiling() or _thread.inside or in_backward():
                return original(*args, **kwargs)
            try:
                _thread.inside = True
                return told(*args, **kwargs)
            finally:
                _thread.inside = False

        return dressed(call, original)


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.autograd, "backward")]


backward = _BackwardPoint("torch.autograd.backward", "to see backward passes", library="torch", find=_places)
