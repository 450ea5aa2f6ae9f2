"""Reads the memory of tensors without a change to the program: `Tensor.numpy()` would forbid it to resize the storage."""

from __future__ import annotations

import sys
from typing import Any

from sonde.hooks.torch import private


def is_there(tensor: Any) -> bool:
    """Does the storage hold all of this tensor? The program may have freed or shrunk it (`untyped_storage().resize_(0)`)."""
    try:
        if not tensor.numel():
            return True
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        end = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps) + 1
        return int(end * tensor.element_size()) <= int(tensor.untyped_storage().nbytes())
    except RuntimeError:  # sparse, nested, or one that stands for others: it has no storage
        return True


def is_gone(value: object) -> bool:
    """Is this a tensor whose memory the program has freed?"""
    torch = sys.modules.get("torch")
    return isinstance(value, getattr(torch, "Tensor", ())) and not is_there(value)


def array_of(tensor: Any) -> Any:
    """The numbers of a tensor of the host as an array that shares them, or, of one that is copied on write, a copy of them.

    Raises TypeError, RuntimeError or BufferError for what NumPy cannot show.
    """
    numpy = sys.modules.get("numpy")  # torch has imported it, if it is there
    if numpy is None:
        raise TypeError("without NumPy a tensor cannot be shown as an array")
    plain = tensor.detach()
    if private.copy_on_write()(plain):
        plain = plain.clone()
    return numpy.from_dlpack(plain)
