"""Repeated strings as numbers with a list of values: DuckDB writes them to a file in half the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted

if TYPE_CHECKING:
    import duckdb

SUFFIX = "_enumerated"  # of the tables `lanes` and `names`
KIND = "kind_enumerated"  # the type of the kinds of events
_TEXTS = {"lanes": ("host", "thread", "process"), "names": ("cat", "name")}


def enumerate_texts(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `lanes` and `names` again with enumerated texts, and the type for the kinds of events."""
    connection.execute(f"CREATE TYPE {KIND} AS ENUM ('span', 'counter', 'mark')")
    for table, texts in _TEXTS.items():
        made = [f"{text}::{type} AS {text}" for text in texts if (type := _type(connection, table, text))]
        replaced = f" REPLACE ({', '.join(made)})" if made else ""
        connection.execute(f"CREATE TABLE {table}{SUFFIX} AS SELECT *{replaced} FROM {table}")


def _type(connection: duckdb.DuckDBPyConnection, table: str, text: str) -> str | None:
    """The type for a column; None: it has no values."""
    values = [
        value
        for (value,) in connection.execute(f"SELECT DISTINCT {text} FROM {table} WHERE {text} IS NOT NULL").fetchall()
    ]
    if not values:
        return None
    connection.execute(f"CREATE TYPE {table}_{text} AS ENUM ({', '.join(quoted(value) for value in sorted(values))})")
    return f"{table}_{text}"
