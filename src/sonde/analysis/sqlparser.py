"""What a query does and which tables it names, by DuckDB's own parser."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sonde.errors import QueryRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import duckdb

# What a SELECT is made of. A WITH may also hold a COPY, an INSERT and the like: these have nodes of other names.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_ALLOW = "To allow everything, use open_run(path, files=True)."


def refuse_writing(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise QueryRefused unless a query is one SELECT, and nothing in it writes."""
    import duckdb

    statements = connection.extract_statements(query)  # raises DuckDB's own error where it is not SQL
    if len(statements) != 1:
        raise QueryRefused(f"Give one SELECT, not {len(statements)} statements. {_ALLOW}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise _refusal(statements[0].type.name)
    for word in _words(connection, query):
        if word.endswith("_NODE") and word not in _READING:
            raise _refusal(word.partition("_")[0])


def named_tables(connection: duckdb.DuckDBPyConnection, query: str, tables: Collection[str]) -> list[str]:
    """Those of `tables` that a query may name."""
    import duckdb

    words = set(_words(connection, query))
    if not words:  # no SELECT, as `COPY ... TO`
        try:
            words = connection.get_table_names(query)
        except duckdb.Error:
            words = set(tables)
    lower = {word.lower() for word in words}
    return [table for table in tables if table in lower]


@contextmanager
def inside() -> Iterator[None]:
    """What DuckDB refuses to open becomes a QueryRefused."""
    import duckdb

    try:
        yield
    except duckdb.PermissionException as error:
        raise QueryRefused(f"SQL may only read the files of this run ({error}). {_ALLOW}") from None


def _refusal(kind: str) -> QueryRefused:
    return QueryRefused(f"Only SELECT is allowed here, not {kind}. {_ALLOW}")


def _words(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[str]:
    """All texts in a parsed SELECT: kinds of nodes, names and constants. None of another statement."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    parts: list[object] = [json.loads(text).get("statements")]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict | list):
            parts += part.values() if isinstance(part, dict) else part
