"""Collects the rows of a computed table process by process, in little memory, and passes them to DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.records.columns import LEAST, PackedRows, pack
from sonde.analysis.records.schema import quoted
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray


# What rows know of their process by its number.
PROCESS_COLUMNS = ("host", "rank", "pid", "process")
LEAST_PART = 1 << 17  # rows that are packed together, if there are so many: each part costs every query a little
MOST_PART = 1 << 20  # while they are packed, a column of them is wide
_LEAST_SMALL = -(2**31)  # stands for no value in 4 bytes


class TableBuilder:
    """The rows of the table `name`, added as arrays. `gaps` are the columns where LEAST stands for no value.

    The column `number` is that of a process; what is known of it comes along.
    """

    def __init__(self, name: str, columns: Mapping[str, str], gaps: Collection[str]) -> None:
        self._name = name
        self._columns = columns  # name -> type in DuckDB
        self._gaps = gaps
        self._waiting: list[dict[str, NDArray[Any]]] = []
        self._count = 0
        self._parts: list[PackedRows] = []

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Take some rows."""
        count = len(columns["number"])
        if not count:
            return
        self._waiting.append({name: _narrow(columns[name]) for name in self._columns})
        self._count += count
        if self._count >= MOST_PART:
            self._close()

    def next_process(self) -> None:
        """What is added from now on is of another process: many rows of one are quicker to read without those of others."""
        if self._count >= LEAST_PART:
            self._close()

    def register(self, connection: duckdb.DuckDBPyConnection, sealed: Sequence[str] = ()) -> None:
        """Make the view of all rows; `sealed`: queries that give further ones."""
        self._close()
        give_back()  # now, and not after each part: what the next process needs would have to be got anew
        selects, people = [], _process_columns(connection)
        for number, part in enumerate(self._parts):
            connection.register(f"{self._name}_{number}", part.arrays)
            selects.append(self._select(connection, part, f"{self._name}_{number}", people))
        nothing = ", ".join(f"NULL::{type} AS {name}" for name, type in self._columns.items())
        known = f"SELECT {', '.join(PROCESS_COLUMNS)} FROM process_numbers"
        rows = " UNION ALL ".join([*selects, *sealed]) or f"SELECT * FROM (SELECT {nothing}), ({known}) WHERE false"
        connection.execute(f"CREATE OR REPLACE VIEW {self._name} AS {rows}")

    def _select(
        self, connection: duckdb.DuckDBPyConnection, part: PackedRows, table: str, people: Mapping[int, str]
    ) -> str:
        """The rows of a part with what is known of their process: of a single one without looking it up for each row."""
        rows = part.select(table, self._columns)
        if "number" not in part.arrays:
            ((number,),) = connection.execute(f"SELECT {part.expressions['number']}").fetchall()
            return f"SELECT *, {people[number]} FROM ({rows})"
        return f"SELECT r.*, {', '.join(f'p.{name}' for name in PROCESS_COLUMNS)} FROM ({rows}) r JOIN process_numbers p USING (number)"

    def _close(self) -> None:
        """Pack what waits, one column after the other: they are wide meanwhile."""
        if not self._count:
            return
        part = PackedRows({}, {})
        for name in self._columns:
            column, none = _joined([some.pop(name) for some in self._waiting])
            packed = pack({name: column}, self._gaps, none)
            part.arrays.update(packed.arrays)
            part.expressions.update(packed.expressions)
        self._waiting, self._count = [], 0
        self._parts.append(part)


def give_back() -> None:
    """Give memory that is free back to the system: the C library of Linux keeps what was in pieces, hundreds of MB here."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    """The same in less memory, if it goes."""
    if column.strides == (0,) or column.dtype != np.int64:
        return column
    low, high = int(column.min()), int(column.max())
    if low == high:
        return np.broadcast_to(column[0], len(column))
    if low > _LEAST_SMALL and high < -_LEAST_SMALL:
        return column.astype(np.int32)
    bounded = np.maximum(column, _LEAST_SMALL)
    lost = np.count_nonzero(bounded == _LEAST_SMALL) != np.count_nonzero(column == LEAST)
    return column.copy() if lost or high >= -_LEAST_SMALL else bounded.astype(np.int32)


def _joined(columns: list[NDArray[Any]]) -> tuple[NDArray[Any], int]:
    """All of them, in 4 bytes if they go into that, and what stands for no value there."""
    if all(column.strides == (0,) and column[0] == columns[0][0] for column in columns):
        return np.broadcast_to(columns[0][0], sum(map(len, columns))), LEAST
    if any(column.dtype.kind != "i" for column in columns):
        return np.concatenate(columns), LEAST
    small = [_small(column) for column in columns]
    if not any(column is None for column in small):
        return np.concatenate([column for column in small if column is not None]), _LEAST_SMALL
    whole = np.concatenate(columns, dtype=np.int64)
    start = 0
    for column in columns:
        if column.dtype == np.int32:
            some = whole[start : start + len(column)]
            some[some == _LEAST_SMALL] = LEAST
        start += len(column)
    return whole, LEAST


def _small(column: NDArray[Any]) -> NDArray[np.int32] | None:
    """A column in 4 bytes, if it is in these already or has one value only, and that goes; else None."""
    if column.dtype == np.int32:
        return column
    value = int(column[0])
    if column.strides != (0,) or not (value == LEAST or _LEAST_SMALL < value < -_LEAST_SMALL):
        return None
    return np.broadcast_to(np.int32(max(value, _LEAST_SMALL)), len(column))


def _process_columns(connection: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """For each number of a process what is known of it, as SQL."""
    found = connection.execute("SELECT number, host, rank, pid, process FROM process_numbers").fetchall()
    return {
        number: f"{_text(host)} AS host, {_number(rank)} AS rank, {_number(pid)} AS pid, {_text(process)} AS process"
        for number, host, rank, pid, process in found
    }


def _text(value: str | None) -> str:
    return "NULL::VARCHAR" if value is None else quoted(value)


def _number(value: int | None) -> str:
    return "NULL::BIGINT" if value is None else f"({value})::BIGINT"
