"""Tensors on a device that the program fills from the host: `device_tensor.copy_(host_tensor)`.

A subscriber gets the target and the source first. Not seen: copies of torch's own making, and between tensors that are both
on the host, or both not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.hooks.torch.transfer import TransferPoint

if TYPE_CHECKING:
    from types import ModuleType

    from sonde.hooks.points import Arguments, Keywords


def _from_host(args: Arguments, kwargs: Keywords) -> bool:
    source = args[1] if len(args) > 1 else kwargs.get("other")
    return getattr(source, "is_cpu", False) and not args[0].is_cpu


def _places(torch: ModuleType) -> list[tuple[Any, str]]:
    return [(torch.Tensor, "copy_")]


tensor_copy = TransferPoint(
    "torch.Tensor.copy_",
    "to see what is copied to a device",
    moves={"copy_": _from_host},
    library="torch",
    find=_places,
)
