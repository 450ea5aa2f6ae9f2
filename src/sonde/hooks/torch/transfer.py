"""Tensors that the program moves to a device: `.to(...)` with a device, and `.cuda()`.

A subscriber gets the tensor as the first of the arguments. Not told: a change of type only, and what torch moves itself
(the parameters in `model.to(device)`, an optimizer's state, the inputs of a distributed model). The call may well return
the same tensor, if it was there already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.engine import compile_test

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from sonde.hooks.points import Arguments, Keywords, Link


class _TransferPoint(Point):
    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        told = self.around(original, link)
        compiling = compile_test()
        moves = _has_device if original.__name__ == "to" else _always

        def call(*args: Any, **kwargs: Any) -> Any:
            # The compiler reads this function where it compiles the program: it must come to the original at once.
            if compiling() or not moves(args, kwargs) or _from_torch(sys._getframe(1).f_globals):
                return original(*args, **kwargs)
            return told(*args, **kwargs)

        return dressed(call, original)


def _has_device(args: Arguments, kwargs: Keywords) -> bool:
    """Is there a device, or a tensor whose device is meant, among the arguments of `Tensor.to`?"""
    torch = sys.modules["torch"]
    first = args[1] if len(args) > 1 else kwargs.get("tensor")
    return kwargs.get("device") is not None or isinstance(first, str | int | torch.device | torch.Tensor)


def _always(_args: Arguments, _kwargs: Keywords) -> bool:
    return True


def _from_torch(names: dict[str, Any]) -> bool:
    module = names.get("__name__")
    return isinstance(module, str) and (module == "torch" or module.startswith("torch."))


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.Tensor, "to"), (torch.Tensor, "cuda")]


tensor_to = _TransferPoint("torch.Tensor.to", "to see what is moved to a device", library="torch", find=_places)
