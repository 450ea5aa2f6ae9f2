"""The table `reads`: reads recorded by `--io`, per file and item, and outside items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

_NUMBERS = {"opens": "opens", "calls": "calls", "bytes": "bytes", "dur_ns": "ns", "disk_bytes": "disk"}
_MADE = {
    "host": "p.host",
    "rank": "p.rank",
    "step": "coalesce(b.step, r.step)",
    "worker": "p.worker",
    "pid": "p.pid",
    "file": "f.path",
    "size": "f.size",
    "process": "o.process",
}
_OF = f"FROM {schema.BESIDE} WHERE kind = 'mark' AND cat = '{probe.IO}' AND name = "


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table. The step of an item is that of its batch: the table `batches` must be there."""
    key = probe.key_columns("key")
    numbers = ", ".join(f"(args->>'$.{name}')::BIGINT AS {column}" for column, name in _NUMBERS.items())
    place = ", ".join(f"{made} AS {name}" for name, made in key.items())
    columns = ", ".join(f'{_MADE.get(name, f"r.{name}")} AS "{name}"' for name, _ in schema.COLUMNS["reads"])
    connection.execute(
        f"""
        CREATE OR REPLACE TABLE reads AS
        SELECT {columns} FROM (
            SELECT process, {place}, step, start_ns AS time_ns, {numbers}, (args->>'$.position')::BIGINT AS position,
                   coalesce((args->>'$.native')::BOOLEAN, false) AS native, (args->>'$.file')::BIGINT AS number
            FROM (SELECT process, key, step, start_ns, args::JSON AS args {_OF}'{probe.READ}')
        ) r JOIN process_numbers p ON p.process = r.process JOIN process_numbers o ON o.number = p.owner
        LEFT JOIN (
            SELECT process, key AS number, any_value(args->>'$.path') AS path, any_value((args->>'$.size')::BIGINT) AS size
            {_OF}'{probe.FILE}' GROUP BY ALL
        ) f ON f.process = r.process AND f.number = r.number
        LEFT JOIN batches b ON b.process = o.process AND b.loader = r.loader AND b.round = r.round AND b.batch = r.batch
        ORDER BY r.time_ns
        """
    )
