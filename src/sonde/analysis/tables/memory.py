"""The table `memory`: sampled memory of processes, with their step at that time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.analysis.tables import steps
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

_COUNTERS = {
    "rss": "rss",
    "allocated": "device.allocated",
    "reserved": "device.reserved",
    "peak": "device.peak",
}
_MADE = {
    "host": "m.host",
    "rank": "a.rank",
    "pid": "m.about",
    "time_ns": "m.start_ns",
    "step": "CASE WHEN m.own AND m.step IS NOT NULL THEN m.step ELSE s.step END",
    "device": "CASE WHEN m.name LIKE 'device.%' THEN coalesce(m.args->>'$.device', 'device') END",
    "process": "a.process",
    **{column: f"CASE WHEN m.name = '{name}' THEN m.value::BIGINT END" for column, name in _COUNTERS.items()},
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table. Needs the rows of `steps`. A worker is at the step of the process that it fetches for."""
    columns = ", ".join(f'{_MADE[name]} AS "{name}"' for name, _ in schema.MEMORY)
    names = ", ".join(f"'{name}'" for name in _COUNTERS.values())
    connection.execute(
        f"""
        CREATE OR REPLACE VIEW memory AS
        WITH measured AS (
            SELECT host, coalesce(key, pid) AS about, coalesce(key = pid, true) AS own, step, start_ns, name, value, args
            FROM {schema.BESIDE}
            WHERE kind = 'counter' AND cat = '{probe.MEMORY}' AND name IN ({names}) AND isfinite(value)
        )
        SELECT {columns} FROM measured m
        ASOF LEFT JOIN process_numbers a ON a.host = m.host AND a.pid = m.about AND m.start_ns >= a.from_ns
        ASOF LEFT JOIN (SELECT process, start_ns, step FROM {steps.ROWS}) s
            ON s.process = a.owner_process AND m.start_ns >= s.start_ns
        """
    )
