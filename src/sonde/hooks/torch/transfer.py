"""Tensors that the program moves to a device: `.to(...)` with a device, and `.cuda()`.

A subscriber gets the tensor as the first of the arguments. Not seen: a change of type only, and what torch moves itself
(the parameters in `model.to(device)`, an optimizer's state, the inputs of a distributed model). The call may well return
the same tensor, if it was there already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point, dressed
from sonde.hooks.torch.status import compile_test

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from sonde.hooks.points import Arguments, Keywords, Link

    Test = Callable[[Arguments, Keywords], bool]


class TransferPoint(Point):
    """A method of tensors that may move them."""

    def __init__(self, name: str, reason: str, *, moves: Mapping[str, Test], **options: Any) -> None:
        """As `Point`. `moves`: for each method, which calls of it move a tensor."""
        super().__init__(name, reason, **options)
        self._moves = moves

    def made(self, original: Callable[..., Any], link: Link) -> Callable[..., Any]:
        """What stands in the place of the method."""
        subscribed = self.around(original, link)
        compiling = compile_test()
        moves = self._moves[original.__name__]

        def call(*args: Any, **kwargs: Any) -> Any:
            # The compiler reads this function where it compiles the program: it must come to the original at once.
            if compiling() or not moves(args, kwargs) or _from_torch(sys._getframe(1).f_globals):
                return original(*args, **kwargs)
            return subscribed(*args, **kwargs)

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


tensor_to = TransferPoint(
    "torch.Tensor.to", "to see what is moved to a device", moves={"to": _has_device, "cuda": _always}, library="torch",
    find=_places,
)  # fmt: skip
