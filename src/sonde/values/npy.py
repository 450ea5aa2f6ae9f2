"""Arrays as bytes in NumPy's .npy format, without pickle, and back from untrusted bytes."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator
from typing import Any

from sonde.hooks.torch import dlpack
from sonde.lazy import numpy

PIECE = 1 << 22  # bytes that are written at once
MAX_EMPTY = 1_000_000  # elements of an array whose elements have no bytes

# What a library may raise when a value of its cannot be turned into an array.
_REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError, OverflowError, BufferError)


def as_array(value: object) -> numpy.ndarray[Any, Any] | None:
    """The NumPy array that holds the same numbers as an array, a NumPy scalar or a tensor; None if there is none."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    try:
        array = numpy.asarray(value if isinstance(value, numpy.ndarray | numpy.generic) else _of_tensor(value))
    except _REFUSALS:
        return None
    return None if array.dtype.hasobject else array


def _of_tensor(value: Any) -> Any:
    if dlpack.is_gone(value):
        raise ValueError("the memory of this tensor was freed")
    plain = value.detach().cpu()
    # NumPy has no such types; every number of theirs is exact in 32 bits.
    if any(word in str(plain.dtype) for word in ("bfloat16", "float8")):
        plain = plain.float()
    return dlpack.array_of(plain.resolve_conj().resolve_neg())


def to_bytes(array: numpy.ndarray[Any, Any]) -> bytes:
    """The content of a .npy file."""
    from numpy.lib import format as npy

    stream = io.BytesIO()
    npy.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def pieces(array: numpy.ndarray[Any, Any]) -> Iterator[Any]:
    """The same content piece by piece, for a large array: what lies in memory as it is written is not copied."""
    from numpy.lib import format as npy

    stream = io.BytesIO()
    kind = array.dtype.newbyteorder("=")
    header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": array.shape}
    npy.write_array_header_1_0(stream, header)
    yield stream.getvalue()
    if array.size == 0 or kind.itemsize == 0:
        return
    whole = array.reshape(1) if array.ndim == 0 else array
    rows = max(PIECE // max(whole[:1].nbytes, 1), 1)
    for start in range(0, len(whole), rows):
        part = numpy.ascontiguousarray(whole[start : start + rows], dtype=kind)
        yield part.reshape(-1).view(numpy.uint8).data


def from_bytes(content: bytes) -> numpy.ndarray[Any, Any]:
    """The array in `content`, for reading; a ValueError if it is not exactly one array without Python objects."""
    from numpy.lib import format as npy

    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"unknown .npy version {version}")
    shape, fortran, dtype = readers[version](stream)
    count = math.prod(shape)
    if dtype.hasobject or count < 0 or count * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("the .npy header does not match its data")
    if count == 0 or dtype.itemsize == 0:
        return numpy.zeros(shape if count <= MAX_EMPTY else (0,), dtype)
    flat = numpy.frombuffer(content, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C")
