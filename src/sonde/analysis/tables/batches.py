"""The table `batches`: what each batch was for, how long it took to fetch, and how long training waited for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.ledger.processes import FUNCTION
from sonde.analysis.records import schema
from sonde.analysis.records.builder import PROCESS_COLUMNS, TableBuilder
from sonde.analysis.training.intervals import NONE
from sonde.analysis.training.purpose import UNKNOWN, WORDS
from sonde.analysis.training.reader import NO_VALUE, Wanted, arrays
from sonde.analysis.training.trainers import trainers
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sonde.analysis.parts.tables import PartTables
    from sonde.analysis.training.source import RecordSource
    from sonde.analysis.training.trainers import Trainer

    Ints = NDArray[np.int64]

ROWS = "batch_rows"
_GAPS = ("step", "epoch", "worker", "size", "start_ns", "wait_ns", "fetch_ns", "collate_ns", "made")
_COLUMNS = dict.fromkeys(("number", "key", "purpose", *_GAPS), "BIGINT")
SEALED = (*_COLUMNS, *PROCESS_COLUMNS)  # what a sealed part has of them, but for the number
LATER = {"made": "BIGINT"}  # what parts that were sealed before lack
TOGETHER = 1 << 20  # fetches and items that are read at a time
_PURPOSES = ", ".join(f"'{word}'" for word in WORDS)
_MADE = {
    **probe.key_columns("key"),
    "purpose": f"[{_PURPOSES}][purpose + 1]",
    "made_ns": "b.start_ns + b.made",
    "indices": f"nullif({FUNCTION}(b.process, b.key), [])",  # read only where a query asks for it
}


def create(
    connection: duckdb.DuckDBPyConnection, source: RecordSource, rows: Sequence[dict[str, Any]], sealed: PartTables
) -> None:
    """Make the table."""
    found = TableBuilder(ROWS, _COLUMNS, _GAPS)
    fetches = _Fetches(connection, source, rows, sealed.processes)
    for trainer in trainers(source, rows, sealed.processes):
        number, waited, sizes = trainer.number, _waited(trainer), trainer.counters.get(probe.SAMPLES)
        del trainer  # before more is read: they are large
        found.add(_columns(number, waited, fetches.of(number, sizes)))
        found.next_process()
    for number in fetches.left():
        wanted = Wanted({}, [], {probe.SAMPLES})
        sizes = source.read(rows[number]["process"], wanted).counters[probe.SAMPLES]
        found.add(_columns(number, None, fetches.of(number, sizes)))
    found.register(connection, sealed.selects("batches", ["NULL::BIGINT AS number", *SEALED[1:]], later=LATER))
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


class _Fetched(NamedTuple):
    """The fetches for one process, by itself or by its workers, sorted by their keys; and the sizes of batches that are known."""

    key: Ints
    start: Ints
    worker: Ints
    lasting: Ints
    collating: Ints
    size_key: Ints
    size: Ints


class _Fetches:
    """The fetches for all processes. They are read for several of these at a time: each time, all events are looked at."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        source: RecordSource,
        rows: Sequence[dict[str, Any]],
        sealed: Collection[str],
    ) -> None:
        self._connection = connection
        owner = dict(connection.execute("SELECT number, owner FROM process_numbers").fetchall())
        counts: dict[int, int] = {}
        for number, row in enumerate(rows):
            named = () if row["process"] in sealed else source.name_counts[row["process"]]
            fetched = [one.count for one in named if one.cat == probe.PROBE and one.name in (probe.FETCH, probe.ITEM)]
            if any(one.kind == "span" and one.cat == probe.PROBE and one.name == probe.FETCH for one in named):
                counts[owner[number]] = counts.get(owner[number], 0) + sum(fetched)
        self._groups = _groups(counts)
        self._left = dict.fromkeys(sorted(counts))
        self._held: dict[int, _Fetched] = {}

    def of(self, number: int, sizes: Mapping[str, NDArray[Any]] | None) -> _Fetched:
        """The fetches for one process, which is not asked for again."""
        if number in self._groups and number not in self._held:
            self._held = self._read(self._groups[number])
        self._left.pop(number, None)
        nothing = np.zeros(0, np.int64)
        found = self._held.pop(number, None) or _Fetched(*(nothing,) * 7)
        key, size = _sizes(sizes)
        return found._replace(size_key=key, size=size)

    def left(self) -> list[int]:
        """The processes that were not asked for: they did not train."""
        return list(self._left)

    def _read(self, numbers: Sequence[int]) -> dict[int, _Fetched]:
        some = ", ".join(map(str, numbers))
        ours = f"(SELECT process, number, owner, worker FROM process_numbers WHERE owner IN ({some}))"
        found = arrays(self._connection, _FETCHES.format(ours=ours))
        items = arrays(self._connection, _ITEMS.format(ours=ours))
        loading = _looked_up(items["fetch"], items["dur_ns"], found["fetch"])
        known = (loading != NONE) & (found["dur_ns"] != NONE)
        found["collating"] = np.where(known, np.maximum(found["dur_ns"] - loading, 0), NONE)
        order = np.lexsort((found["start_ns"], found["key"], found["owner"]))
        columns = [found[name][order] for name in ("key", "start_ns", "worker", "dur_ns", "collating")]
        turns = np.searchsorted(found["owner"][order], [*numbers, numbers[-1] + 1])
        nothing = np.zeros(0, np.int64)
        return {
            number: _Fetched._make([*(column[low:high] for column in columns), nothing, nothing])
            for number, low, high in zip(numbers, turns, turns[1:], strict=False)
        }


def _groups(counts: Mapping[int, int]) -> dict[int, list[int]]:
    """For each process those that are read together with it."""
    groups: dict[int, list[int]] = {}
    group: list[int] = []
    held = 0
    for number in sorted(counts):
        if held + counts[number] > TOGETHER:
            group, held = [], 0
        group.append(number)
        groups[number] = group
        held += counts[number]
    return groups


_FETCHES = f"""
    SELECT p.owner, key, start_ns, coalesce(dur_ns, {NO_VALUE}) AS dur_ns, coalesce(p.worker, {NO_VALUE}) AS worker,
           p.number::BIGINT << 32 | seq AS fetch
    FROM {schema.LOOSE} JOIN {{ours}} p USING (process)
    WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.FETCH}' AND key IS NOT NULL
"""
_ITEMS = f"""
    SELECT p.number::BIGINT << 32 | parent AS fetch, sum(dur_ns)::BIGINT AS dur_ns
    FROM {schema.LOOSE} JOIN {{ours}} p USING (process)
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
    # When it was finished, counted from the start of the wait: that is a small number.
    known = (columns["fetch_ns"] != NONE) & (columns["start_ns"] != NONE)
    columns["made"] = np.where(known, own[place] + columns["fetch_ns"] - columns["start_ns"], NONE)
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
