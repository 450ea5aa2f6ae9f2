"""The table `files`: what was read of each file by a rank and its loader workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema

if TYPE_CHECKING:
    import duckdb

_MADE = {
    "size": "max(size)",
    "items": "count(*) FILTER (position IS NOT NULL)",
    "native": "bool_or(native)",
    **{name: f"sum({name})::BIGINT" for name in ("opens", "calls", "bytes", "dur_ns", "disk_bytes")},
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table, of `reads`."""
    columns = ", ".join(f'{_MADE.get(name, name)} AS "{name}"' for name, _ in schema.COLUMNS["files"])
    connection.execute(
        f"CREATE OR REPLACE VIEW files AS SELECT {columns} FROM reads WHERE file IS NOT NULL GROUP BY host, rank, file, process"
    )
