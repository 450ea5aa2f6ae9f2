"""Reads single rows of untrusted .npy files: never a pickle, and no more than requested."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.lazy import numpy
from sonde.store.file import RegularFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Array = numpy.ndarray[Any, Any]

MOST_HEADER = 12_000  # bytes of a header
MOST_BYTES = 32 << 20  # of one row, and of an array that is read whole

_MAGIC = b"\x93NUMPY"
_LENGTHS = {b"\x01\x00": 2, b"\x02\x00": 4}  # version -> bytes of the length of the header
_DTYPE = re.compile(r"[<>|=](?:b1|[ui][1248]|f[248])")  # truth values, whole numbers, floating-point numbers


class Head(NamedTuple):
    """What the beginning of a file says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Any
    offset: int


def read_head(content: bytes, size: int) -> Head:
    """The head of an array of numbers in a file of `size` bytes; a ValueError if that is not what is in it."""
    text, offset = _header(content)
    try:
        fields = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("shape"), tuple):
        raise ValueError("its header is invalid")  # noqa: TRY004  what is in the file is wrong
    shape, descr = fields["shape"], fields.get("descr")
    if not isinstance(descr, str) or _DTYPE.fullmatch(descr) is None:
        raise ValueError(f"it holds {str(descr)[:50]}, not numbers")
    dtype = numpy.dtype(descr)
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError("its shape is invalid")
    if math.prod(shape) * dtype.itemsize != size - offset:
        raise ValueError("the .npy header does not match its data")
    return Head(shape, fields.get("fortran_order") is True, dtype, offset)


def _header(content: bytes) -> tuple[str, int]:
    """The text that describes the array, and where that itself begins."""
    if content[:6] != _MAGIC or content[6:8] not in _LENGTHS:
        raise ValueError("it is not a .npy file of version 1 or 2")
    begin = 8 + _LENGTHS[content[6:8]]
    end = begin + int.from_bytes(content[8:begin], "little")
    if end > len(content):
        raise ValueError("its header is truncated")
    return content[begin:end].decode("latin1").strip(), end


def read_whole(path: Path) -> Array:
    """The array in a file. Raises OSError or ValueError if it is none, or too large."""
    with RegularFile(path) as file:
        head = read_head(file.read(MOST_HEADER, 0), file.size())
        if file.size() > MOST_BYTES:
            raise ValueError(f"it has {file.size()} bytes, over the maximum of {MOST_BYTES}")
        flat = numpy.frombuffer(file.read(file.size() - head.offset, head.offset), head.dtype)
    return flat.reshape(head.shape, order="F" if head.fortran else "C")


def read_rows(path: Path, wanted: Sequence[int]) -> dict[int, Array]:
    """Some rows of the array in a file, by their number; those that it does not have are left out."""
    with RegularFile(path) as file:
        head = read_head(file.read(MOST_HEADER, 0), file.size())
        if not head.shape:
            return {}
        if head.fortran and len(head.shape) > 1:
            whole = read_whole(path)
            return {row: whole[row] for row in wanted if 0 <= row < len(whole)}
        length = math.prod(head.shape[1:]) * head.dtype.itemsize
        if length > MOST_BYTES:
            raise ValueError(f"one row has {length} bytes, over the maximum of {MOST_BYTES}")
        found = {}
        for row in wanted:
            if 0 <= row < head.shape[0]:
                content = file.read(length, head.offset + row * length)
                found[row] = numpy.frombuffer(content, head.dtype).reshape(head.shape[1:])
        return found
