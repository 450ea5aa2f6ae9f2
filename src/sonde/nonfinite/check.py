"""Is a tensor finite? The check of every layer's output: exact, with one read of the memory.

In C (`native/finite.c`) for plain tensors of the host. Otherwise a sum tells that all is well; only if that is not finite the least and
the greatest value are asked for, so that a sum that overflows is no alarm. Whole numbers are never looked at.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sonde.hooks.torch import dlpack, private
from sonde.native import finite

native: Any = finite  # None: C was not built
INF = 1
NAN = 2
KINDS = {INF: "inf", NAN: "nan", INF | NAN: "nan and inf"}
MOST_VALUES = 64  # of one container
DEEPEST = 4  # containers in each other


def dtypes(torch: Any) -> tuple[Any, ...]:
    """Those that can be other than finite; the first four are looked at in C."""
    return (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32,
    )  # fmt: skip


def look(tensor: Any) -> int:
    """INF and NAN as bits; 0 if all is finite, or it is nothing that can be looked at."""
    if native is not None:
        bits: int = native.look(tensor)
        if bits >= 0:
            return bits
    return look_slowly(tensor)


def look_slowly(tensor: Any) -> int:
    """The same by torch itself: on other devices, for other layouts and dtypes, and where C was not built."""
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return 0  # a subclass decides for itself what its values are
    if tensor.dtype not in dtypes(torch) or tensor.device.type == "meta" or tensor.is_nested or tensor.is_mkldnn:
        return 0
    if private.is_wrapped(tensor):
        return 0
    with torch.no_grad():
        values = stored(tensor.detach())
        return _confirmed(torch, _reals(torch, values)) if dlpack.is_there(values) else 0


def stored(tensor: Any) -> Any:
    """The numbers that a tensor holds: of a sparse one, those that are not left out."""
    torch = sys.modules["torch"]
    if tensor.layout is torch.strided:
        return tensor
    return private.sparse_values(tensor) if tensor.layout is torch.sparse_coo else tensor.values()


def _reals(torch: Any, values: Any) -> Any:
    """Numbers as real ones, side by side."""
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _confirmed(torch: Any, values: Any) -> int:
    if not values.numel() or math.isfinite(values.sum().item()):
        return 0
    low, high = (one.item() for one in torch.aminmax(values))
    if math.isnan(low):
        return NAN | (INF if bool(torch.isinf(values).any()) else 0)
    return INF if math.isinf(low) or math.isinf(high) else 0


def bad(tensor: Any) -> Any:
    """True where a value is not finite, on the host: as a tensor of the same shape, or of those that a sparse one holds.

    Nowhere in one whose memory the program has freed.
    """
    torch = sys.modules["torch"]
    with torch.no_grad():
        values = stored(tensor.detach())
        there = values if dlpack.is_there(values) else torch.zeros(values.shape, device="cpu")
        return torch.isfinite(there).logical_not().cpu()


def look_into(value: Any, deeper: int = DEEPEST) -> int:
    """The same for whatever a dataset gives: tensors, arrays and numbers, alone or in containers."""
    if native is not None and deeper == DEEPEST and (known := native.look_into(value)) >= 0:
        return int(known)
    if isinstance(value, float):
        return NAN if math.isnan(value) else INF if math.isinf(value) else 0
    tensor = as_tensor(value)
    if tensor is not None:
        return look(tensor)
    bits = 0
    for one in _values_of(value)[:MOST_VALUES] if deeper else ():
        bits |= look_into(one, deeper - 1)
    return bits


def _values_of(value: Any) -> Sequence[Any]:
    """What is in a container; nothing if it is none."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, type):
        return ()
    return [getattr(value, name, None) for name in getattr(value, "__dataclass_fields__", ())]


def as_tensor(value: Any) -> Any:
    """A tensor as it is, an array of NumPy as one that shares its memory; None for everything else."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return value
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.floating) or value.dtype.kind not in "fc":
        return None
    if value.dtype.itemsize > 16 or not value.dtype.isnative or value.dtype.char == "g":
        return None
    return torch.from_numpy(numpy.require(numpy.atleast_1d(value), requirements=["W"]))
