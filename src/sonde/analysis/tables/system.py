"""The table `system`: what was measured of the host and of its processes, as it was sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

_MADE = {"pid": "nullif(key, 0)", "time_ns": "start_ns", "metric": "name"}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table."""
    columns = ", ".join(f'{_MADE.get(name, name)} AS "{name}"' for name, _ in schema.SYSTEM)
    connection.execute(
        f"CREATE OR REPLACE VIEW system AS SELECT {columns} FROM {schema.BESIDE} WHERE kind = 'counter' AND cat = '{probe.SYSTEM}'"
    )
