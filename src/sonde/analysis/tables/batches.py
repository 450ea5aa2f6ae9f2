"""The table `batches`: what each batch was for, how long it took to fetch, and how long training waited for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.ledger.processes import FUNCTION
from sonde.analysis.records import schema
from sonde.analysis.records.builder import TableBuilder
from sonde.analysis.training.intervals import NONE
from sonde.analysis.training.purpose import UNKNOWN, WORDS
from sonde.analysis.training.reader import NO_VALUE, Wanted, arrays
from sonde.analysis.training.trainers import trainers
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sonde.analysis.training.source import RecordSource
    from sonde.analysis.training.trainers import Trainer

    Ints = NDArray[np.int64]

ROWS = "batch_rows"
_GAPS = ("step", "epoch", "worker", "size", "start_ns", "wait_ns", "fetch_ns", "collate_ns")
_COLUMNS = dict.fromkeys(("number", "key", "purpose", *_GAPS), "BIGINT")
_PURPOSES = ", ".join(f"'{word}'" for word in WORDS)
_MADE = {
    **probe.key_columns("key"),
    "purpose": f"[{_PURPOSES}][purpose + 1]",
    "indices": f"nullif({FUNCTION}(b.number, b.key), [])",  # read only where a query asks for it
}


def create(connection: duckdb.DuckDBPyConnection, source: RecordSource, rows: Sequence[dict[str, Any]]) -> None:
    """Make the table."""
    found = TableBuilder(ROWS, _COLUMNS, _GAPS)
    seen = set()
    for trainer in trainers(source, rows):
        seen.add(trainer.number)
        number, waited, sizes = trainer.number, _waited(trainer), trainer.counters.get(probe.SAMPLES)
        del trainer  # before more is read: they are large
        found.add(_columns(number, waited, _Fetched(connection, number, sizes)))
        found.next_process()
    for number in _others(connection, seen):
        wanted = Wanted({}, [], {probe.SAMPLES})
        sizes = source.read(rows[number]["process"], wanted).counters[probe.SAMPLES]
        found.add(_columns(number, None, _Fetched(connection, number, sizes)))
    found.register(connection)
    columns = ", ".join(f'{_MADE.get(name, f"b.{name}")} AS "{name}"' for name, _ in schema.BATCHES)
    connection.execute(f"CREATE OR REPLACE VIEW batches AS SELECT {columns} FROM {ROWS} b")


class _Waited(NamedTuple):
    """Batches that somebody waited for. NONE where something is not known."""

    key: Ints
    start: Ints
    wait: Ints
    purpose: Ints
    step: Ints
    epoch: Ints


def _waited(trainer: Trainer) -> _Waited:
    """The fetches of the threads that train, and those of others, which keep nobody waiting."""
    timeline = trainer.timeline
    waits, purposes, row = timeline.batches()
    step, epoch = (np.append(column, NONE)[row] for column in (timeline.updates.step, timeline.updates.epoch))
    own = waits.key != NONE
    if not trainer.names & {probe.INPUT_WAIT, probe.PREFETCH}:
        own[:] = False  # fetches of the vocabulary: nobody knows the loader
    order = np.argsort(trainer.aside["start_ns"], kind="stable")
    aside = {name: column[order] for name, column in trainer.aside.items()}
    nothing = np.full(len(aside["key"]), NONE)
    return _Waited(
        np.append(waits.key[own], aside["key"]),
        np.append(waits.start[own], aside["start_ns"]),
        np.append((waits.end - waits.start)[own], nothing),
        np.append(purposes.purpose[own].astype(np.int64), np.full(len(nothing), UNKNOWN)),
        np.append(step[own], nothing),
        np.append(epoch[own], nothing),
    )


class _Fetched:
    """The fetches for one process, by itself or by its workers, sorted by their keys."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, number: int, sizes: Mapping[str, NDArray[Any]] | None
    ) -> None:
        ours = f"(SELECT process, number, worker FROM process_numbers WHERE owner = {number})"
        found = arrays(connection, _FETCHES.format(ours=ours))
        order = np.lexsort((found["start_ns"], found["key"]))
        self.key, self.start = found["key"][order], found["start_ns"][order]
        self.worker, self.lasting = found["worker"][order], found["dur_ns"][order]
        items = arrays(connection, _ITEMS.format(ours=ours))
        loading = _looked_up(items["fetch"], items["dur_ns"], found["fetch"][order])
        known = (loading != NONE) & (self.lasting != NONE)
        self.collating = np.where(known, np.maximum(self.lasting - loading, 0), NONE)
        self.size_key, self.size = _sizes(sizes)


_FETCHES = f"""
    SELECT key, start_ns, coalesce(dur_ns, {NO_VALUE}) AS dur_ns, coalesce(p.worker, {NO_VALUE}) AS worker,
           p.number::BIGINT << 32 | seq AS fetch
    FROM {schema.BESIDE} JOIN {{ours}} p USING (process)
    WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.FETCH}' AND key IS NOT NULL
"""
_ITEMS = f"""
    SELECT p.number::BIGINT << 32 | parent AS fetch, sum(dur_ns)::BIGINT AS dur_ns
    FROM {schema.BESIDE} JOIN {{ours}} p USING (process)
    WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.ITEM}' AND parent IS NOT NULL AND dur_ns IS NOT NULL
    GROUP BY 1
"""


def _sizes(counted: Mapping[str, NDArray[Any]] | None) -> tuple[Ints, Ints]:
    """The keys of batches whose size is known, and these."""
    if counted is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    known = np.flatnonzero((counted["key"] != NONE) & np.isfinite(counted["value"]))
    return counted["key"][known], np.rint(counted["value"][known]).astype(np.int64)


def _columns(number: int, waited: _Waited | None, fetched: _Fetched) -> dict[str, Ints]:
    """One row for each batch that was waited for, and for each that was fetched and never asked for."""
    nothing = np.zeros(0, np.int64)
    some = waited or _Waited(*(nothing,) * 6)
    key, place = _paired(some.key, fetched.key)
    asked = np.arange(len(key)) < len(some.key)
    gaps = np.full(len(key) - len(some.key), NONE)
    right = place >= 0
    columns = {
        "number": np.full(len(key), number),
        "key": key,
        "purpose": np.append(some.purpose, np.full(len(gaps), UNKNOWN)),
        "step": np.append(some.step, gaps),
        "epoch": np.append(some.epoch, gaps),
        "wait_ns": np.append(some.wait, gaps),
        "size": _looked_up(fetched.size_key, fetched.size, key),
    }
    own = np.append(fetched.start, NONE)
    columns["start_ns"] = np.where(asked, np.append(some.start, gaps), own[place])
    for name, values in (("worker", fetched.worker), ("fetch_ns", fetched.lasting), ("collate_ns", fetched.collating)):
        columns[name] = np.where(right, np.append(values, NONE)[place], NONE)
    return columns


def _paired(waited: Ints, fetched: Ints) -> tuple[Ints, Ints]:
    """The keys of all batches, and the place of the fetch of each; -1: there is none. `fetched` is sorted."""
    order = np.argsort(waited, kind="stable")
    ordered = waited[order]
    # Loaders are used more often than a key can count: of several batches with one key, the first was fetched first.
    again = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    place = np.searchsorted(fetched, ordered) + again
    right = np.append(fetched, NONE)[np.minimum(place, len(fetched))] == ordered
    found = np.full(len(waited), -1)
    found[order] = np.where(right & (place < len(fetched)), place, -1)
    left = np.setdiff1d(np.arange(len(fetched)), found, assume_unique=False)
    return np.append(waited, fetched[left]), np.append(found, left)


def _looked_up(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """The value of each wanted key; NONE where it is not known."""
    if not len(keys):
        return np.full(len(wanted), NONE)
    order = np.argsort(keys, kind="stable")
    place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[place] == wanted, values[place], NONE)


def _others(connection: duckdb.DuckDBPyConnection, seen: set[int]) -> list[int]:
    """Processes for which something was fetched, and which did not train."""
    found = connection.execute(
        f"""
        SELECT DISTINCT owner FROM {schema.BESIDE} JOIN process_numbers p USING (process)
        WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.FETCH}' ORDER BY 1
        """
    ).fetchall()
    return [number for (number,) in found if number not in seen]
