"""What the tables of sampled steps have in common: a row of counters, one for each thing that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store.probe import key_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "split_part(s.name, '/', 1)"  # of a name "model/layer"
LAYER = "substr(s.name, strpos(s.name, '/') + 1)"


def sampled(category: str, measured: Mapping[str, str]) -> str:
    """The rows `s` of all samples of a category: process, step, name, key, and a column for each thing that was measured."""
    columns = ", ".join(
        f"any_value(value) FILTER (cat = '{category}{what}') AS {column}" for column, what in measured.items()
    )
    return (
        f"(SELECT process, step, name, key, {columns} FROM {schema.BESIDE} "
        f"WHERE kind = 'counter' AND starts_with(cat, '{category}') GROUP BY ALL) s JOIN process_numbers p USING (process)"
    )


def view(table: str, made: Mapping[str, str], source: str) -> str:
    """The query that makes a table of these columns."""
    columns = {"host": "p.host", "rank": "p.rank", "pid": "p.pid", "process": "p.process"} | dict(made)
    listed = ", ".join(f'{columns.get(name, f"s.{name}")} AS "{name}"' for name, _ in schema.COLUMNS[table])
    return f"CREATE OR REPLACE VIEW {table} AS SELECT {listed} FROM {source}"


BATCH = key_columns("s.key")
