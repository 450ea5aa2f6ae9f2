"""What an output looks like as a column of a table: shape and dtype of one item, to Arrow and back."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sonde.errors import ResultsError

if TYPE_CHECKING:
    import pyarrow

ID = "object_id"
SHAPE, DTYPE = b"sonde.shape", b"sonde.dtype"
TEXTS = {"U": "str", "S": "bytes"}  # kinds of NumPy arrays that have no fixed width in a table
PLAIN = "biuf"
LARGEST_FLOAT = 8  # bytes; Arrow has no longer one


class ResultColumn(NamedTuple):
    """One output of a model: `shape` is that of one item, `dtype` a name of NumPy, "str" or "bytes"."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> bool:
        """Is it a text for each item?"""
        return self.dtype in TEXTS.values()

    @property
    def nbytes(self) -> int:
        """The size of one item; of a text, a guess."""
        return 32 if self.text else max(1, math.prod(self.shape) * np.dtype(self.dtype).itemsize)

    def words(self) -> str:
        """How a message names it."""
        return f"shape {self.shape} and dtype {self.dtype}"


def column(name: str, array: np.ndarray[Any, Any]) -> ResultColumn:
    """The column for an array of a whole batch. Raises ResultsError if no table can hold it."""
    _check_name(name)
    if array.ndim == 0:
        raise ResultsError(f"The output {name!r} is a single number, not one value per item of the batch.")
    shape, dtype = array.shape[1:], array.dtype
    if dtype.kind in TEXTS and not shape:
        return ResultColumn(name, (), TEXTS[dtype.kind])
    if dtype.kind not in PLAIN + "cmM" or (
        dtype.kind in "fc" and dtype.itemsize > LARGEST_FLOAT * (1 + (dtype.kind == "c"))
    ):
        raise ResultsError(
            f"The output {name!r} has the dtype {dtype} and the shape {array.shape}, which a results table cannot "
            "hold. Return numbers, or one string per item."
        )
    if 0 in shape:
        raise ResultsError(f"The output {name!r} is empty: one item has the shape {shape}. Leave it out.")
    return ResultColumn(name, shape, dtype.newbyteorder("=").name)


def _check_name(name: str) -> None:
    if name == ID:
        raise ResultsError(f"An output cannot be named {ID!r}: that column holds the ids. Choose another name.")
    if not name or "." in name:
        raise ResultsError(f"An output cannot be named {name!r}. Use a non-empty string without a dot.")


# ── to Arrow ──


def schema(columns: list[ResultColumn]) -> pyarrow.Schema:
    """The schema of a table with ids and these columns; each field knows the shape and dtype of an item."""
    import pyarrow

    fields = [pyarrow.field(ID, pyarrow.string(), nullable=False)]
    for one in columns:
        facts = {SHAPE: json.dumps(one.shape), DTYPE: one.dtype}
        fields.append(pyarrow.field(one.name, _type(one), nullable=False, metadata=facts))
    return pyarrow.schema(fields)


def _type(one: ResultColumn) -> pyarrow.DataType:
    import pyarrow

    if one.text:
        return pyarrow.string() if one.dtype == "str" else pyarrow.binary()
    stored, parts = _stored(one)
    value = pyarrow.from_numpy_dtype(stored)
    return pyarrow.list_(value, parts) if one.shape or parts > 1 else value


def _stored(one: ResultColumn) -> tuple[np.dtype[Any], int]:
    """What stands in the table for one item: complex numbers are pairs, times are whole numbers."""
    dtype = np.dtype(one.dtype)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}"), 2 * math.prod(one.shape)
    return (np.dtype(np.int64) if dtype.kind in "mM" else dtype), math.prod(one.shape)


def encoded(one: ResultColumn, values: Any) -> pyarrow.Array:
    """The values of a column, an array or a list of texts, for Arrow: without a copy, but for bool."""
    import pyarrow

    if one.text:
        return pyarrow.array(values, _type(one))
    stored, parts = _stored(one)
    flat = pyarrow.array(values.reshape(-1).view(stored))
    return pyarrow.FixedSizeListArray.from_arrays(flat, parts) if one.shape or parts > 1 else flat


# ── from Arrow ──


def described(field: pyarrow.Field) -> ResultColumn | None:
    """The column for a field of any table; None if it is nothing that an array can hold."""
    known = field.metadata or {}
    if SHAPE in known and DTYPE in known:
        return _column_of(field.name, known)
    return _guessed(field)


def _column_of(name: str, known: dict[bytes, bytes]) -> ResultColumn | None:
    try:
        shape, dtype = json.loads(known[SHAPE]), known[DTYPE].decode()
        if dtype not in TEXTS.values():
            np.dtype(dtype)
        return ResultColumn(name, tuple(int(size) for size in shape), dtype)
    except (ValueError, TypeError):  # written by somebody else, or damaged
        return None


def _guessed(field: pyarrow.Field) -> ResultColumn | None:
    """A field without our metadata: numbers and fixed-size lists of numbers, and texts."""
    from pyarrow import types

    kind: Any = field.type
    shape: tuple[int, ...] = ()
    if types.is_string(kind) or types.is_large_string(kind):
        return ResultColumn(field.name, (), "str")
    if types.is_fixed_size_list(kind):
        kind, shape = kind.value_type, (kind.list_size,)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return ResultColumn(field.name, shape, np.dtype(kind.to_pandas_dtype()).name)
    return None


def decoded(one: ResultColumn, values: pyarrow.ChunkedArray) -> np.ndarray[Any, Any]:
    """The array of a column, as it was before it was written. It may be read-only."""
    if one.text:
        return np.array(values.to_pylist(), dtype=np.str_ if one.dtype == "str" else np.bytes_)
    stored, _ = _stored(one)
    flat = [_flat(chunk).to_numpy(zero_copy_only=False) for chunk in values.chunks]
    joined = flat[0] if len(flat) == 1 else np.concatenate([np.empty(0, stored), *flat])
    return joined.astype(stored, copy=False).view(np.dtype(one.dtype)).reshape(len(values), *one.shape)


def _flat(chunk: pyarrow.Array) -> pyarrow.Array:
    return chunk.flatten() if hasattr(chunk, "flatten") and chunk.type.num_fields else chunk
