"""Reads and writes the ledgers of a sealed run, one table for all processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.ledger.ledger import Ledger, narrow
from sonde.analysis.records.schema import misfit, quoted
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Of parts of one byte each a dictionary and zstd make fewer bits than of numbers of two bytes, which no dictionary holds.
_FIRST = "low::BIGINT + high::BIGINT * 256 + rest * 65536"
# A page of a column with more values than this would not use a dictionary, in larger groups it needs fewer of them.
_FORMAT = "FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION v2, ROW_GROUP_SIZE 1048576, DICTIONARY_SIZE_LIMIT 256"
_COLUMNS = (
    ("process", "VARCHAR"),
    ("key", "BIGINT"),
    ("position", "UINTEGER"),
    ("worker", "SMALLINT"),
    ("flags", "UTINYINT"),
    ("low", "UTINYINT"),
    ("high", "UTINYINT"),
    ("rest", "BIGINT"),
    ("length", "UINTEGER"),
    ("digest", "UBIGINT"),
    ("digest_of", "UTINYINT"),
    ("keys", "VARCHAR"),
    ("shuffle", "UINTEGER"),
)
_TYPES = ((2**8, "UTINYINT"), (2**16, "USMALLINT"), (2**32, "UINTEGER"))


def read_sealed(connection: duckdb.DuckDBPyConnection, file: str, process: str, notes: list[str]) -> Ledger | None:
    """The ledger of a process in a sealed file; None if it has none."""
    table = _sealed_rows(connection, file)
    wrong = misfit(connection, table, _COLUMNS)
    if wrong is not None:
        raise RunUnreadable(f"its table is damaged (it has no column {wrong!r} of the right type)")
    rows = f"FROM {table} WHERE process = {quoted(process)}"
    ((count, lowest, highest, longest),) = connection.execute(
        f"SELECT count(*), min({_FIRST}), max({_FIRST}), max(length) {rows}"
    ).fetchall()
    if not count:
        return None
    first = "BIGINT" if lowest < 0 else _type_for(highest)
    found: dict[str, Any] = connection.execute(
        f"SELECT ({_FIRST})::{first} AS first, length::{_type_for(longest)} AS run, position = 0 AS head {rows}"
    ).fetchnumpy()
    heads: dict[str, Any] = connection.execute(
        f"SELECT key, worker, flags, coalesce(digest, 0) AS digest, digest_of, shuffle {rows} AND position = 0"
    ).fetchnumpy()
    texts = connection.execute(
        f"SELECT place, keys FROM (SELECT row_number() OVER () - 1 AS place, keys {rows} AND position = 0) "
        "WHERE keys IS NOT NULL"
    ).fetchall()
    gone = int(np.count_nonzero(heads["shuffle"]))
    if gone:
        notes.append(
            f"The items of {gone} batches of {process} are no longer available: an earlier version of Sonde sealed "
            "this run and stored their orders as recipes."
        )
    start = np.append(np.flatnonzero(found["head"]), count)
    return Ledger(heads, start, found["first"], found["run"], dict(texts))


def _sealed_rows(connection: duckdb.DuckDBPyConnection, file: str) -> str:
    """The rows of a sealed file; earlier versions called `length` `run`, and had no `shuffle`."""
    table = f"read_parquet({quoted(file)})"
    columns = {row[0] for row in connection.execute(f"DESCRIBE FROM {table}").fetchall()}
    return (
        table
        if "shuffle" in columns or "run" not in columns
        else f"(SELECT *, run AS length, 0::UINTEGER AS shuffle FROM {table})"
    )


def _type_for(highest: int) -> str:
    return next((type for limit, type in _TYPES if highest < limit), "BIGINT")


def write_sealed(connection: duckdb.DuckDBPyConnection, ledgers: Sequence[tuple[str, Ledger]], path: Path) -> None:
    """Fill a file with the rows of ledgers, process by process, and read it back.

    Raises RunUnreadable if that gives something else.
    """
    # So that the rows stay in their order: they are joined with the batches, and not the batches with them.
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    rows = " UNION ALL ".join(_register(connection, number, *one) for number, one in enumerate(ledgers))
    connection.execute(f"COPY ({rows}) TO {quoted(str(path))} ({_FORMAT}, USE_TMP_FILE false)")
    connection.execute("RESET disabled_optimizers")
    for process, one in ledgers:
        if read_sealed(connection, str(path), process, []) != one:
            raise RunUnreadable(
                f"The ledger of {process} in {path.name} differs after reading it back. The run is unchanged; check "
                "the disk, then seal again."
            )


def _register(connection: duckdb.DuckDBPyConnection, number: int, process: str, one: Ledger) -> str:
    """Register the arrays of a ledger; the query that gives its rows as they are sealed, in their order."""
    heads, rows = f"ledger_heads_{number}", f"ledger_rows_{number}"
    connection.register(heads, _head_arrays(one))
    connection.register(rows, _row_arrays(one))
    return f"""
        SELECT {quoted(process)} AS process, h.key AS key, r.position::UINTEGER AS position,
               h.worker::SMALLINT AS worker, h.flags::UTINYINT AS flags, (r.first & 255)::UTINYINT AS low,
               ((r.first >> 8) & 255)::UTINYINT AS high, (r.first >> 16)::BIGINT AS rest, r.run::UINTEGER AS length,
               CASE WHEN r.position = 0 AND h.digest_of > 0 THEN h.digest::UBIGINT END AS digest,
               (CASE WHEN r.position = 0 THEN h.digest_of ELSE 0 END)::UTINYINT AS digest_of,
               (CASE WHEN r.position = 0 THEN h.keys END)::VARCHAR AS keys,
               h.shuffle::UINTEGER AS shuffle
        FROM (SELECT first::BIGINT AS first, run, position, entry FROM {rows}) r JOIN {heads} h ON h.entry = r.entry
    """


def _head_arrays(one: Ledger) -> dict[str, Any]:
    keys = np.full(len(one), None, dtype=object)
    for place, text in one.texts.items():
        keys[place] = text
    return {
        "entry": np.arange(len(one), dtype=np.uint32),
        "key": one.key,
        "worker": one.worker,
        "flags": one.flags,
        "digest": one.digest,
        "digest_of": one.digest_of,
        "keys": keys,
        "shuffle": one.shuffle,
    }


def _row_arrays(one: Ledger) -> dict[str, Any]:
    counts = np.diff(one.start)
    entry = np.repeat(np.arange(len(one), dtype=np.uint32), counts)
    # Rows of a batch with several have a run of one each.
    position = np.arange(len(entry), dtype=np.int64)
    position -= np.repeat(one.start[:-1], counts)
    return {"entry": entry, "position": narrow(position), "first": one.first, "run": one.run}
