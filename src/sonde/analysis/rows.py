"""Collects the rows of a table that is computed, process by process, in little memory, and hands them to DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.columns import Part, pack

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import duckdb
    from numpy.typing import NDArray


PART = 1 << 17  # rows that are packed together: they are wide until then, but each part costs every query a little


class Rows:
    """The rows of the table `name`, added as arrays. `gaps` are the columns where LEAST stands for no value."""

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
        selects = []
        for number, part in enumerate(self._parts):
            connection.register(f"{self._name}_{number}", part.arrays)
            selects.append(part.select(f"{self._name}_{number}", self._columns))
        nothing = ", ".join(f"NULL::{type} AS {name}" for name, type in self._columns.items())
        rows = " UNION ALL ".join(selects) or f"SELECT {nothing} WHERE false"
        connection.execute(f"CREATE OR REPLACE VIEW {self._name} AS {rows}")

    def _close(self) -> None:
        import numpy as np

        if self._count:
            whole = {name: np.concatenate([some[name] for some in self._waiting]) for name in self._columns}
            self._waiting, self._count = [], 0
            self._parts.append(pack(whole, self._gaps))
