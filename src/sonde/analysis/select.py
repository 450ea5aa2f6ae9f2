"""Refuses SQL that does more than read a run, by DuckDB's own parser."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sonde.errors import QueryRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

# What a SELECT is made of. A WITH may also hold a COPY, an INSERT and the like: these have nodes of other names.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_ALLOW = "open_run(path, files=True) allows everything."


def refuse_writing(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise QueryRefused unless a query is one SELECT, and nothing in it writes."""
    import duckdb

    statements = connection.extract_statements(query)  # raises DuckDB's own error where it is not SQL
    if len(statements) != 1:
        raise QueryRefused(f"Give one SELECT, not {len(statements)} statements. {_ALLOW}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise _refusal(statements[0].type.name)
    if "with" in query.lower():
        ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        for kind in _nodes(json.loads(text)):
            if kind not in _READING:
                raise _refusal(kind.partition("_")[0])


@contextmanager
def inside() -> Iterator[None]:
    """What DuckDB refuses to open becomes a QueryRefused."""
    import duckdb

    try:
        yield
    except duckdb.PermissionException as error:
        raise QueryRefused(f"SQL reads the files of this run only ({error}). {_ALLOW}") from None


def _refusal(kind: str) -> QueryRefused:
    return QueryRefused(f"Only SELECT is allowed here, not {kind}. {_ALLOW}")


def _nodes(part: object) -> Iterator[str]:
    """The kinds of all query nodes in a parsed query."""
    if isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE"):
            yield kind
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from _nodes(one)
