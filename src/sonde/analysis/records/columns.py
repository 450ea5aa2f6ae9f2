"""Turns records into columns that DuckDB scans in place, each in its smallest type.

Rows come in parts. A column of a part keeps the distance to its smallest value, in 1, 2, 4 or 8 bytes; where a column can
have no value, 0 stands for that. A column with one value only takes no memory at all. 10 million events of a training
loop need about 270 MB so, where the records themselves have 480.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from sonde.store.reading.reader import Chunk

SMALLEST_PART = 1 << 18
MOST_PARTS = 64  # DuckDB plans a query over so many parts in an instant; over a thousand it takes half a minute
LEAST = -(2**63)

_WIDE = {
    "start_ns": "<i8",
    "dur_ns": "<i8",
    "key": "<i8",
    "name": "<u4",
    "args": "<u4",
    "seq": "<u4",
    "parent": "<u4",
    "step": "<u4",
    "epoch": "<u2",
    "kind": "u1",
    "depth": "<u4",
    "lane": "<u4",
}
_NONE = {"key": record.NO_KEY, "args": 0, "parent": 0, "step": record.NO_STEP, "epoch": record.NO_EPOCH}
_SMALL = (("u1", 2**8), ("<u2", 2**16), ("<u4", 2**32))


class PackedRows(NamedTuple):
    """Some rows: arrays for DuckDB, and for each column the expression that makes its values from them."""

    arrays: dict[str, NDArray[Any]]
    expressions: dict[str, str]

    def select(self, table: str, names: Iterable[str] = (*_WIDE, "value")) -> str:
        """The query that gives the rows, if the arrays are registered as `table`."""
        columns = ", ".join(f"{self.expressions[name]} AS {name}" for name in names)
        return f"SELECT {columns} FROM {table}"


class Columns:
    """Takes the chunks of one process after the other, and gives parts of `size` rows.

    `ordered`: within a part the rows of each process are sorted by their start.
    """

    def __init__(self, size: int, *, ordered: bool = False) -> None:
        self._size = size
        self._ordered = ordered
        self._parts: list[PackedRows] = []
        self._wide: dict[str, NDArray[Any]] = {}
        self._rows = 0
        self._turns = [0]  # the rows of the current part with which a process begins

    def next_process(self) -> None:
        """What is added from now on is of another process."""
        self._turns.append(self._rows)

    def add(self, chunk: Chunk, lanes: NDArray[np.uint32], names: NDArray[np.uint32], offset: int) -> None:
        """Take a chunk. `lanes` and `names` replace its thread ordinals and name ids, `offset` is added to its times."""
        done = 0
        while done < len(chunk.records):
            if self._rows == self._size:
                self._close()
            count = min(self._size - self._rows, len(chunk.records) - done)
            self._copy(slice(done, done + count), chunk, lanes, names, offset)
            done += count

    def finish(self) -> list[PackedRows]:
        """All parts. Nothing can be added any more."""
        self._close()
        self._wide = {}
        return self._parts

    def _copy(
        self, taken: slice, chunk: Chunk, lanes: NDArray[np.uint32], names: NDArray[np.uint32], offset: int
    ) -> None:
        if not self._wide:
            self._wide = {name: np.empty(self._size, dtype=dtype) for name, dtype in _WIDE.items()}
        records = chunk.records[taken]
        place = slice(self._rows, self._rows + len(records))
        # Added as unsigned numbers, so that a damaged time runs over instead of stopping the reader.
        starts = self._wide["start_ns"][place].view(np.uint64)
        np.add(records["start"], np.uint64(offset % 2**64), out=starts)
        self._wide["dur_ns"][place] = records["dur"]
        for name in ("key", "args", "seq", "parent", "step", "epoch", "kind"):
            self._wide[name][place] = records[name]
        self._wide["name"][place] = names[taken]
        self._wide["lane"][place] = lanes[taken]
        self._wide["depth"][place] = chunk.depths[taken]
        self._rows += len(records)

    def _close(self) -> None:
        if self._rows:
            wide = {name: column[: self._rows] for name, column in self._wide.items()}
            if self._ordered:
                for first, last in pairwise([*self._turns, self._rows]):
                    _sort({name: column[first:last] for name, column in wide.items()})
            self._parts.append(_part(wide))
        self._rows = 0
        self._turns = [0]


def part_size(rows: int) -> int:
    """How large the parts should be, for about so many rows."""
    return max(SMALLEST_PART, rows // MOST_PARTS + 1)


def pack(columns: Mapping[str, NDArray[Any]], gaps: Collection[str] = (), none: int = LEAST) -> PackedRows:
    """A part of whole numbers (`none` stands for no value in the columns `gaps`), floats and flags. The columns are used up."""
    part = PackedRows({}, {})
    for name, column in columns.items():
        if column.strides == (0,):  # one value, repeated
            nothing = name in gaps and column[0] == none
            part.expressions[name] = "NULL::BIGINT" if nothing else number_text(int(column[0]))
        elif name in gaps:
            _add_with_gaps(part, name, column, none)
        elif column.dtype.kind == "i":
            _add(part, name, column)
        elif column.dtype.kind == "b" and column.all() == column.any():
            part.expressions[name] = "true" if column[0] else "false"
        else:
            part.arrays[name] = column
            part.expressions[name] = name
    if not part.arrays:
        part.arrays["row"] = np.zeros(len(next(iter(columns.values()))), dtype=np.uint8)
    return part


def _sort(wide: dict[str, NDArray[Any]]) -> None:
    order = np.lexsort((wide["seq"], wide["start_ns"]))
    for column in wide.values():
        column[:] = column[order]


def _part(wide: dict[str, NDArray[Any]]) -> PackedRows:
    """One part. What is in `wide` is used up."""
    part = PackedRows({}, {})
    kinds = wide["kind"] & record.KIND_MASK
    for name, column in wide.items():
        if name in _NONE:
            _add_with_gaps(part, name, column, _NONE[name])
        elif name != "dur_ns":
            _add(part, name, column)
    if np.any(kinds == record.COUNTER):
        _add_values(part, wide["dur_ns"])
    else:
        _add(part, "dur_ns", wide["dur_ns"])
        part.expressions["value"] = "NULL::DOUBLE"
    done = f"{part.expressions['kind']} & {record.KIND_MASK | record.OPEN} = {record.SPAN}"
    part.expressions["dur_ns"] = f"CASE WHEN {done} THEN {part.expressions['dur_ns']} END"
    if not part.arrays:
        part.arrays["row"] = np.zeros(len(kinds), dtype=np.uint8)  # all columns are constant: only the rows count
    return part


def _add_values(part: PackedRows, bits: NDArray[Any]) -> None:
    """Where a span has its duration, a counter has the bits of a float: one array serves both."""
    part.arrays["dur_ns"] = bits.copy()
    part.arrays["value"] = part.arrays["dur_ns"].view(np.float64)
    counts = f"{part.expressions['kind']} & {record.KIND_MASK} = {record.COUNTER}"
    part.expressions["dur_ns"] = "dur_ns::BIGINT"
    # DuckDB takes NaN in an array for "none", but a counter always has a value, and NaN is the one that matters most.
    part.expressions["value"] = f"CASE WHEN {counts} THEN coalesce(value, 'NaN'::DOUBLE) END"


def _add(part: PackedRows, name: str, column: NDArray[Any]) -> None:
    """Add a column that has a value in each row."""
    low, high = int(column.min()), int(column.max())
    small, size = next((one for one in _SMALL if high - low < one[1]), (None, 0))
    if low == high:
        part.expressions[name] = number_text(low)
    elif small is None:
        part.arrays[name] = column.copy()
        part.expressions[name] = f"{name}::BIGINT"
    elif low >= 0 and high < size:  # as they are: an addition for each row is what makes queries slow
        part.arrays[name] = column.astype(small)
        part.expressions[name] = f"{name}::BIGINT"
    else:
        part.arrays[name] = np.empty(len(column), dtype=small)
        np.subtract(column, low, out=part.arrays[name], casting="unsafe", dtype=np.int64)
        part.expressions[name] = distance(name, low)


def _add_with_gaps(part: PackedRows, name: str, column: NDArray[Any], none: int) -> None:
    """Add a column where `none` stands for no value."""
    # Turned around such that `none` is the largest number and the order of the others stays: value = number + shift.
    shift = none + 1 if none <= 0 else 0
    numbers = column.view(f"u{column.itemsize}")
    numbers -= numbers.dtype.type(shift % 2 ** (8 * column.itemsize))
    top = 2 ** (8 * column.itemsize) - 1
    low, high = int(numbers.min()), int(numbers.max())
    if low == top:
        part.expressions[name] = "NULL::BIGINT"
        return
    if high < top:
        numbers += numbers.dtype.type(shift % 2 ** (8 * column.itemsize))
        _add(part, name, column)
        return
    gaps = numbers == top
    np.putmask(numbers, gaps, low)
    high = int(numbers.max())
    small = next((dtype for dtype, size in _SMALL if high - low + 1 < size), None)
    if small is None:
        part.arrays[name] = (numbers + numbers.dtype.type(shift % 2 ** (8 * column.itemsize))).view(column.dtype)
        part.arrays[f"no_{name}"] = gaps
        part.expressions[name] = f"CASE WHEN NOT no_{name} THEN {name}::BIGINT END"
        return
    numbers -= numbers.dtype.type(low)
    numbers += numbers.dtype.type(1)
    array = numbers.astype(small)
    array[gaps] = 0
    part.arrays[name] = array
    part.expressions[name] = distance(name, low + shift, gaps=True)


def distance(name: str, low: int, *, gaps: bool = False) -> str:
    """The values of a column that has their distances to `low`; with gaps, these begin at 1, and 0 stands for no value."""
    return f"(nullif({name}, 0)::BIGINT + {number_text(low - 1)})" if gaps else f"({name}::BIGINT + {number_text(low)})"


def number_text(value: int) -> str:
    """A whole number as SQL."""
    # DuckDB reads a minus sign apart from its number, and 2^63 fits into no BIGINT.
    return f"({LEAST + 1} - 1)::BIGINT" if value == LEAST else f"({value})::BIGINT"
