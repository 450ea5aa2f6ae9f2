"""What C may ask of torch without a call of Python: the view of a tensor, its gradient, and how far autograd has counted.

A tensor is seen through the exchange between libraries (DLPack), which torch offers, or quicker through functions that torch exports
for C. Those are taken only where samples show that both tell the same; `events/native/tensor.h` makes that proof.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any, TypeAlias

# Of libtorch and of c10, which it loads; in the order of the struct in native/tensor.h.
ASKED = (
    "_ZNK3c1010TensorImpl11has_storageEv", "_ZNK3c1010TensorImpl13requires_gradEv", "_ZNK3c1010TensorImpl4gradEv",
    "aoti_torch_get_device_type", "aoti_torch_get_dtype", "aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "aoti_torch_get_data_ptr",
)  # fmt: skip
COUNTER = "_ZN2at15sequence_number4peekEv"  # of autograd: what `_get_sequence_nr` of torch calls
LIBRARIES = {"linux": ("libtorch_cpu.so", "libc10.so"), "darwin": ("libtorch_cpu.dylib", "libc10.dylib")}

Sample: TypeAlias = tuple[Any, int, int, bool]


def exchange(torch: Any) -> Any:
    """What lets C see a tensor without a call of Python; None where torch has none yet."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def counter(torch: Any) -> int:
    """The address of the function that says how far autograd has counted: it is asked of every layer, and a call through Python is
    most of what that would cost. 0 where there is none of this name, or it says something else than torch itself.
    """
    import ctypes

    function = _function(torch, COUNTER)
    if function is None:
        return 0
    function.restype, function.argtypes = ctypes.c_uint64, ()
    return _address(function) if function() == torch._C._autograd._get_sequence_nr() else 0


@cache
def sight(torch: Any) -> tuple[int, tuple[int, ...], tuple[Sample, ...]] | None:
    """Where a tensor keeps its part in C++, the functions that tell of that, and samples to prove it by: tensors, with the addresses
    of their parts and of those of their gradients, and whether gradients of them are computed. None where torch has not all of it.
    """
    functions = [_function(torch, name) for name in ASKED]
    samples = tuple(map(_facts, _samples(torch)))
    offset = _offset(*samples[0][:2])
    if offset is None or None in functions:
        return None
    return offset, tuple(map(_address, functions)), samples


def _facts(one: Any) -> Sample:
    return one, one._cdata, 0 if one.grad is None else one.grad._cdata, one.requires_grad


def _samples(torch: Any) -> list[Any]:
    """Tensors of each kind of number, of several shapes and layouts, one with a gradient, on the host."""
    kinds = (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool,
    )  # fmt: skip
    made = [torch.zeros((2, 3), dtype=kind, device="cpu") for kind in kinds]
    taught = torch.zeros(3, device="cpu", requires_grad=True)
    taught.grad = torch.zeros(3, device="cpu")
    return [*made, made[0].t(), made[0][:, 1:], made[0][0, 1], taught, torch.nn.Parameter(made[1])]


def _offset(tensor: Any, part: int) -> int | None:
    """Where in the Python object the address of its part in C++ stands, behind what every object begins with."""
    import ctypes

    size, first = ctypes.sizeof(ctypes.c_void_p), object.__basicsize__
    words = range(first, type(tensor).__basicsize__ - size + 1, size)
    return next((at for at in words if ctypes.c_void_p.from_address(id(tensor) + at).value == part), None)


def _function(torch: Any, name: str) -> Any:
    """One of what torch has loaded."""
    import ctypes

    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for library in LIBRARIES.get(sys.platform, ()):
        try:
            return ctypes.CDLL(os.path.join(folder, library), os.RTLD_NOLOAD | os.RTLD_NOW)[name]
        except (OSError, AttributeError):
            continue
    return None


def _address(function: Any) -> int:
    import ctypes

    return ctypes.cast(function, ctypes.c_void_p).value or 0
