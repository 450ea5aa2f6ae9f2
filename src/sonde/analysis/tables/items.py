"""The table `items`: every requested item, who loaded it, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

    from sonde.analysis.parts.tables import PartTables

_VALUES = {
    "host": "p.host",
    "rank": "p.rank",
    **probe.key_columns("i.batch"),
    "worker": "p.worker",
    "pid": "p.pid",
    "process": "o.process",
}
# One by one, as the probes saw them.
_TIMED = _VALUES | {
    "position": "i.position",
    "index": "CASE WHEN i.text IS NULL THEN i.key END",
    "id": "i.text",
    "start_ns": "i.start_ns",
    "dur_ns": "i.dur_ns",
    "error": "i.error",
}
# Fetched all at once (`__getitems__`): the indices are known, the time of each is not.
_LISTED = _VALUES | {
    "position": "i.position",
    "index": "try_cast(i.item->>'$' AS BIGINT)",
    "id": "CASE WHEN json_type(i.item) = 'VARCHAR' THEN i.item->>'$' END",
    "start_ns": "i.start_ns",
    "dur_ns": "NULL::BIGINT",
    "error": "i.error",
}
# Items that the program marked itself, in processes where the probes saw none.
_MARKED = _VALUES | {
    "loader": "NULL::BIGINT",
    "round": "NULL::BIGINT",
    "batch": "NULL::BIGINT",
    "position": "NULL::BIGINT",
    "index": "i.key",
    "id": "NULL::VARCHAR",
    "start_ns": "i.start_ns",
    "dur_ns": "i.dur_ns",
    "error": "i.error",
}
_PROBE = f"kind = 'span' AND cat = '{probe.PROBE}'"


# What was read for an item, where files were watched; a name only where that of all, or most, of the bytes is known.
_READ = ("file", "bytes")
_LOADED = [(name, type) for name, type in schema.ITEMS if name not in _READ]
_PLACE = ("process", "loader", "round", "batch", "position")


def create(connection: duckdb.DuckDBPyConnection, sealed: PartTables, *, watched: bool) -> None:
    """Make the table. The step of an item is that of its batch: the table `batches` must be there, and `reads` if files were watched."""
    people = "JOIN process_numbers p ON p.process = i.process JOIN process_numbers o ON o.number = p.owner"
    connection.execute(
        f"""
        CREATE OR REPLACE VIEW item_rows AS
        SELECT {_columns(_TIMED)} FROM (
            SELECT e.*, f.key AS batch, e.args->>'$.key' AS text,
                   row_number() OVER (PARTITION BY e.process, e.parent ORDER BY e.seq) - 1 AS position
            FROM (SELECT * FROM {schema.LOOSE} WHERE {_PROBE} AND name = '{probe.ITEM}') e
            LEFT JOIN (SELECT process, seq, key FROM {schema.LOOSE} WHERE {_PROBE} AND name = '{probe.FETCH}') f
                ON f.process = e.process AND f.seq = e.parent
        ) i {people}
        UNION ALL
        SELECT {_columns(_LISTED)} FROM (
            SELECT process, key AS batch, start_ns, error, unnest(indices) AS item, unnest(range(len(indices))) AS position
            FROM (
                SELECT *, json_extract(args, '$.indices[*]') AS indices
                FROM {schema.LOOSE} WHERE {_PROBE} AND name = '{probe.FETCH}' AND args IS NOT NULL
            )
        ) i {people}
        UNION ALL
        SELECT {_columns(_MARKED)} FROM {schema.LOOSE} i {people}
        WHERE i.kind = 'span' AND i.cat = 'data' AND i.name = 'item'
          AND i.process NOT IN (SELECT DISTINCT process FROM {schema.LOOSE} WHERE {_PROBE} AND name = '{probe.ITEM}')
        """
    )
    columns = ", ".join(f'{"b" if name == "step" else "i"}."{name}"' for name, _ in _LOADED)
    loose = f"SELECT {columns} FROM item_rows i LEFT JOIN batches b USING (process, loader, round, batch)"
    selects = [loose, *sealed.selects("items", [name for name, _ in _LOADED])]
    loads = f"({' UNION ALL '.join(selects)}) i"
    values = {name: f'i."{name}"' for name, _ in _LOADED} | {"file": "NULL::VARCHAR", "bytes": "NULL::BIGINT"}
    if watched:
        values |= {"file": "r.file", "bytes": "r.bytes"}
        place = ", ".join(_PLACE)
        loads += (
            f" LEFT JOIN (SELECT {place}, arg_max(coalesce(file, ''), (coalesce(bytes, 0), opens)) AS named, nullif(named, '') AS file, "
            f"sum(bytes)::BIGINT AS bytes FROM reads WHERE position IS NOT NULL GROUP BY {place}) r USING ({place})"
        )
    columns = ", ".join(f'{values[name]} AS "{name}"' for name, _ in schema.ITEMS)
    connection.execute(f"CREATE OR REPLACE VIEW items AS SELECT {columns} FROM {loads}")


def _columns(values: dict[str, str]) -> str:
    return ", ".join(f'{values[name]} AS "{name}"' for name, _ in _LOADED if name != "step")
