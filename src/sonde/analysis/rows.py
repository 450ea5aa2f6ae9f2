"""Collects the rows of a table that is computed, process by process, in little memory, and hands them to DuckDB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sonde.analysis.columns import Part, pack
from sonde.analysis.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import duckdb
    from numpy.typing import NDArray


# What rows know of their process by its number.
PEOPLE = ("host", "rank", "pid", "process")
PART = 1 << 17  # rows that are packed together: they are wide until then, but each part costs every query a little


class Rows:
    """The rows of the table `name`, added as arrays. `gaps` are the columns where LEAST stands for no value.

    The column `number` is that of a process; what is known of it comes along.
    """

    def __init__(self, name: str, columns: Mapping[str, str], gaps: Collection[str]) -> None:
        self._name = name
        self._columns = columns  # name -> type in DuckDB
        self._gaps = gaps
        self._waiting: list[Mapping[str, NDArray[Any]]] = []
        self._count = 0
        self._parts: list[Part] = []

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Take some rows. The columns are used up."""
        count = len(next(iter(columns.values())))
        if count >= PART:
            self._parts.append(pack(columns, self._gaps))
            return
        self._waiting.append(columns)
        self._count += count
        if self._count >= PART:
            self._close()

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the view of all rows."""
        self._close()
        selects, people = [], _people(connection)
        for number, part in enumerate(self._parts):
            connection.register(f"{self._name}_{number}", part.arrays)
            selects.append(self._select(part, f"{self._name}_{number}", people))
        nothing = ", ".join(f"NULL::{type} AS {name}" for name, type in self._columns.items())
        known = f"SELECT {', '.join(PEOPLE)} FROM process_numbers"
        rows = " UNION ALL ".join(selects) or f"SELECT * FROM (SELECT {nothing}), ({known}) WHERE false"
        connection.execute(f"CREATE OR REPLACE VIEW {self._name} AS {rows}")

    def _select(self, part: Part, table: str, people: Mapping[int, str]) -> str:
        """The rows of a part with what is known of their process: of a single one without looking it up for each row."""
        rows = part.select(table, self._columns)
        if "number" not in part.arrays:
            (number,) = re.findall(r"-?\d+", part.expressions["number"])
            return f"SELECT *, {people[int(number)]} FROM ({rows})"
        return f"SELECT r.*, {', '.join(f'p.{name}' for name in PEOPLE)} FROM ({rows}) r JOIN process_numbers p USING (number)"

    def _close(self) -> None:
        import numpy as np

        if self._count:
            whole = {name: np.concatenate([some[name] for some in self._waiting]) for name in self._columns}
            self._waiting, self._count = [], 0
            self._parts.append(pack(whole, self._gaps))


def _people(connection: duckdb.DuckDBPyConnection) -> dict[int, str]:
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
