"""The table `item_values`: values given to `sonde.log_items`, one row per item, matched through its batch."""

from __future__ import annotations

import base64
import binascii
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.ledger.itemvalues import ItemCall, KnownBatch, batches_of
from sonde.analysis.records import schema
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from sonde.analysis.ledger.ledger import Ledger
    from sonde.analysis.ledger.processes import Ledgers

MOST = 1 << 20  # values of one call; a count beyond it is damage
NONE = -(2**63)
_MARKS = f"""
    SELECT process, name, coalesce((args->>'$.call')::BIGINT, -1), start_ns - coalesce((args->>'$.ago')::BIGINT, 0), step,
           (args->>'$.count')::BIGINT, (args->>'$.first')::BIGINT, args->>'$.values'
    FROM (SELECT process, name, start_ns, step, args::JSON AS args FROM {schema.BESIDE}
          WHERE kind = 'mark' AND cat = '{probe.ITEM_VALUES}' AND args IS NOT NULL)
    ORDER BY 1, 3, 2
"""
_BATCHES = """
    SELECT start_ns + coalesce(wait_ns, 0), step, purpose, size, loader, round, batch FROM batches
    WHERE process = $process AND start_ns IS NOT NULL ORDER BY 1, loader, round, batch
"""
_MADE = {
    "host": "p.host",
    "rank": "p.rank",
    "pid": "p.pid",
    "step": "c.step",
    "purpose": "nullif(c.purpose, '')",
    **{name: f"nullif(c.{name}, {NONE})" for name in ("loader", "round", "batch")},
    "position": "v.position",
    "index": f'nullif(v."index", {NONE})',
    "id": "v.id",
    "name": "c.name",
    "value": "coalesce(v.value, 'NaN'::DOUBLE)",  # DuckDB takes NaN in an array for "none"
    "process": "p.process",
}


class _Call(NamedTuple):
    """A call with its values; `call.step` is the step in which it was made."""

    call: ItemCall
    values: Any  # float32
    known: Any  # the places whose record was not lost


def create(connection: duckdb.DuckDBPyConnection, ledgers: Ledgers) -> None:
    """Make the table. The table `batches` must be there."""
    calls: list[tuple[object, ...]] = []
    places: list[Any] = []
    indices: list[Any] = []
    ids: list[Any] = []
    values: list[Any] = []
    rows = connection.execute(_MARKS).fetchall()
    for process, some in groupby(rows, key=itemgetter(0)):
        made = sorted(_calls(list(some)), key=lambda one: one.call.time)
        known = connection.execute(_BATCHES, {"process": process}).fetchall()
        found = batches_of([one.call for one in made], [KnownBatch(*row[:4]) for row in known])
        ledger = ledgers.of(process)
        for one, place in zip(made, found, strict=True):
            key = None if place is None else known[place][4:]
            index, id = _items(ledger, key, len(one.values))
            step = one.call.step if place is None or known[place][1] is None else known[place][1]
            calls.append((len(calls), process, one.call.name, step, *_batch(known, place)))
            places.append(one.known)
            for column, all in ((indices, index), (ids, id), (values, one.values)):
                column.append(all[one.known])
    _register(connection, calls, places, indices, ids, values)
    columns = ", ".join(f'({_MADE[name]})::{type} AS "{name}"' for name, type in schema.ITEM_VALUES)
    connection.execute(
        f"CREATE OR REPLACE VIEW item_values AS SELECT {columns} FROM item_value_rows v "
        "JOIN item_value_calls c USING (call) JOIN process_numbers p ON p.process = c.process"
    )


def _batch(known: Sequence[tuple[Any, ...]], place: int | None) -> tuple[object, ...]:
    return ("", NONE, NONE, NONE) if place is None else (known[place][2], *known[place][4:])


def _calls(marks: list[tuple[Any, ...]]) -> Iterator[_Call]:
    """The calls of one process, put together from their records."""
    for (_, name), some in groupby(marks, key=itemgetter(2, 1)):
        pieces = list(some)
        _, _, _, time, step, count, _, _ = pieces[0]
        if count is None or not 0 < count <= MOST:
            continue
        values, known = np.zeros(count, np.float32), np.zeros(count, bool)
        for *_, first, text in pieces:
            piece = _floats(text)
            if first is not None and 0 <= first < count:
                values[first : first + len(piece)] = piece[: count - first]
                known[first : first + len(piece)] = True
        yield _Call(ItemCall(name, time, step, count), values, np.flatnonzero(known).astype(np.uint32))


def _floats(text: str | None) -> Any:
    try:
        content = base64.b64decode(text or "", validate=True)
    except binascii.Error:
        content = b""
    return np.frombuffer(content[: len(content) // 4 * 4], "<f4")


def _items(ledger: Ledger | None, key: tuple[int, int, int] | None, count: int) -> tuple[Any, Any]:
    """The indices and ids of the items of a batch; missing if the ledger knows another number of items."""
    missing, texts = np.full(count, NONE, np.int64), np.full(count, None, object)
    batch = None if ledger is None or key is None else ledger.batch(probe.batch_key(*key))
    if batch is None or batch.size != count:
        return missing, texts
    if batch.indices is not None:
        return np.asarray(batch.indices, np.int64), texts
    for place, one in enumerate(batch.keys or []):
        texts[place] = one if isinstance(one, str) else repr(one)
    return missing, texts


def _register(
    connection: duckdb.DuckDBPyConnection,
    calls: list[tuple[object, ...]],
    places: list[Any],
    indices: list[Any],
    ids: list[Any],
    values: list[Any],
) -> None:
    """Make the tables of calls and of their values."""
    types = ("UINTEGER", "VARCHAR", "VARCHAR", "BIGINT", "VARCHAR", "BIGINT", "BIGINT", "BIGINT")
    names = ("call", "process", "name", "step", "purpose", "loader", "round", "batch")
    given: dict[str, Any] = {}
    for place, name in enumerate(names):
        given[name] = np.empty(len(calls), object)
        given[name][:] = [row[place] for row in calls]
    _make(connection, "item_value_calls", dict(zip(names, types, strict=True)), given)
    sizes = [len(one) for one in values]
    rows = {
        "call": np.repeat(np.arange(len(calls), dtype=np.uint32), sizes),
        "position": _joined(places, np.uint32),
        "index": _joined(indices, np.int64),
        "id": _joined(ids, object),
        "value": _joined(values, np.float32),
    }
    columns = {"call": "UINTEGER", "position": "UINTEGER", "index": "BIGINT", "id": "VARCHAR", "value": "DOUBLE"}
    _make(connection, "item_value_rows", columns, rows)


def _joined(some: list[Any], type: Any) -> Any:
    return np.concatenate(some) if some else np.empty(0, type)


def _make(connection: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str], arrays: dict[str, Any]) -> None:
    made = ", ".join(f'"{name}"::{type} AS "{name}"' for name, type in columns.items())
    connection.register("given", arrays)
    connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {made} FROM given")
    connection.unregister("given")
