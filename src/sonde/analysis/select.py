"""Reads SQL with DuckDB's own parser: which tables a query names, and whether it only reads."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sonde.analysis.tables import TABLES
from sonde.errors import QueryRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

# What a SELECT is made of. A WITH may also hold a COPY, an INSERT and the like: these have nodes of other names.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_ALLOW = "open_run(path, files=True) allows everything."


def tables_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """The tables of the run that a query names. Raises QueryRefused unless it is one SELECT."""
    import duckdb

    statements = connection.extract_statements(query)  # raises DuckDB's own error where it is not SQL
    if len(statements) != 1:
        raise QueryRefused(f"Give one SELECT, not {len(statements)} statements. {_ALLOW}")
    if statements[0].type is not duckdb.StatementType.SELECT:
        raise QueryRefused(f"Only SELECT is allowed here, not {statements[0].type.name}. {_ALLOW}")
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    words: set[str] = set()
    _read(json.loads(text), words)
    return [table for table in TABLES if table in words]


@contextmanager
def inside() -> Iterator[None]:
    """What DuckDB refuses to open becomes a QueryRefused."""
    import duckdb

    try:
        yield
    except duckdb.PermissionException as error:
        raise QueryRefused(f"SQL reads the files of this run only ({error}). {_ALLOW}") from None


def _read(part: object, words: set[str]) -> None:
    """Collect all texts of a parsed query, names of tables among them; refuse what does more than read."""
    if isinstance(part, str):
        words.add(part.lower())
    elif isinstance(part, list):
        for one in part:
            _read(one, words)
    elif isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING:
            raise QueryRefused(f"Only SELECT is allowed here, not {kind.partition('_')[0]}. {_ALLOW}")
        for one in part.values():
            _read(one, words)
