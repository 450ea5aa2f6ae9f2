"""Reads the records that make up the steps of one process: phases, updates and counters, in little memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sonde import native
from sonde.analysis.records.schema import PHASES, quoted
from sonde.lazy import numpy as np
from sonde.store import probe, record
from sonde.store.reading.segment import BAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sonde.analysis.records.names import NameCount
    from sonde.store.reading.reader import ProcessRecording
    from sonde.store.reading.segment import Slice

    Columns = dict[str, NDArray[Any]]

NONE = -(2**63)  # stands for no value
NO_VALUE = f"({NONE + 1} - 1)"  # as SQL
MOST_RUNS = 1000
DEVICE_TIMES = {phase: f"{probe.DEVICE}{phase}" for phase in (probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER)}
COUNTERS = (
    probe.SAMPLES,
    probe.LOSS,
    f"{probe.DDP}backward_comm",
    f"{probe.DDP}overlap",
    *DEVICE_TIMES.values(),
    probe.DEVICE_PEAK,
)
_OTHER, _UPDATE, _GC, _COUNTER = 255, 254, 253, 240  # beside the codes of spans
_NUMBERS = dict.fromkeys(("start_ns", "end_ns", "dur_ns", "key", "step", "epoch"), "<i8")
_DTYPES = {**_NUMBERS, "code": "u1", "seq": "<u4", "lane": "<u4", "value": "<f8"}
_UPDATES = ("start_ns", "step", "epoch", "key", "lane", "seq")
_GARBAGE = ("start_ns", "dur_ns", "seq")
_ASIDE = ("start_ns", "key", "seq")
_WAIT = PHASES.index(probe.INPUT_WAIT)
_COUNTED = ("start_ns", "step", "value", "seq")
_SIZED = ("key", "value", "seq")
_DIVIDED = (*_COUNTED, "key")
_GAPS = {"step": record.NO_STEP, "epoch": record.NO_EPOCH}
_FIELDS = {"start": (0, 8), "dur": (8, 8), "key": (16, 8), "seq": (32, 4)}  # of a record: the first byte, and how many


class Wanted(NamedTuple):
    """What to read: for each (category, name) of spans its phase, in which threads; and which other names there are.

    `numbered`: the steps of spans too; `aside`: waits of other threads too; `logged`: the loss as the program has logged it.
    """

    codes: Mapping[tuple[str, str], int]
    lanes: Sequence[int]
    names: set[str]
    numbered: bool = False
    aside: bool = False
    logged: bool = False


class Trail(NamedTuple):
    """What was read, in the order of the records' numbers; NONE where there is no value.

    `spans`: code, start_ns, end_ns, key; with several threads `lane`, with steps that are wanted `step`. `updates`:
    start_ns, step, epoch, key, lane. `aside`, the waits of other threads: start_ns, key. `garbage`: start_ns, dur_ns.
    `counters`, by their names: value, and start_ns and step, of losses key too; of samples only key.
    """

    spans: Columns
    updates: Columns
    aside: Columns
    garbage: Columns
    counters: dict[str, Columns]


def arrays(connection: duckdb.DuckDBPyConnection, query: str) -> Columns:
    """The answer to a query as arrays."""
    return cast("dict[str, NDArray[Any]]", connection.execute(query).fetchnumpy())


def _of_counters(name: str) -> tuple[str, ...]:
    return {probe.SAMPLES: _SIZED, probe.LOSS: _DIVIDED}.get(name, _COUNTED)


def _of_spans(wanted: Wanted) -> tuple[str, ...]:
    more = ("lane",) * (len(wanted.lanes) > 1) + ("step",) * wanted.numbered
    return ("code", "start_ns", "end_ns", "key", "seq", *more)


def _ordered(columns: Columns) -> Columns:
    """By `seq`, which is not needed any more then. Mostly they come in a few runs, each in order. They are used up."""
    seq = columns.pop("seq")
    turns = (np.flatnonzero(seq[1:] <= seq[:-1]) + 1).tolist()
    if not turns:
        return columns
    runs = sorted(pairwise([0, *turns, len(seq)]), key=lambda run: int(seq[run[0]])) if len(turns) < MOST_RUNS else []
    if runs and all(seq[one[1] - 1] < seq[other[0]] for one, other in pairwise(runs)):
        for name in columns:  # one after the other: they are large
            columns[name] = np.concatenate([columns[name][slice(*run)] for run in runs])
        return columns
    order = np.argsort(seq, kind="stable")
    for name in columns:
        columns[name] = columns[name][order]
    return columns


# ── raw records ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Room:
    """Memory for the largest columns, used again for each process: to get it anew takes longer than to fill it.

    Those that are soon used up are not kept: others get their memory then.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], NDArray[Any]] = {}

    def column(self, of: str, name: str, rows: int) -> NDArray[Any]:
        """A column of something, with room for so many rows; whoever had it before has it no more."""
        if name == "seq" or of in COUNTERS or not rows:
            return np.empty(rows, dtype=_DTYPES[name])
        if len(self._kept.get((of, name), ())) < rows:
            self._kept.pop((of, name), None)  # before there is another
            self._kept[of, name] = np.empty(rows, dtype=_DTYPES[name])
        return self._kept[of, name][:rows]


def read_raw(
    recording: ProcessRecording, offset: int, wanted: Wanted, name_counts: Sequence[NameCount], room: Room
) -> Trail:
    """Read it from a recording. `offset` is added to its times; `name_counts` says how many records there are.

    What was read into the same `room` before is gone.
    """
    reading = _Sorting(recording.names, offset, wanted, name_counts, room)
    for one in recording.slices():
        reading.add(one)
    recording.close()
    return reading.trail()


class _Sorting:
    """Takes the chunks of one process, and keeps what is wanted of them."""

    def __init__(
        self,
        names: Mapping[int, tuple[str, str]],
        offset: int,
        wanted: Wanted,
        name_counts: Sequence[NameCount],
        room: Room,
    ) -> None:
        self._offset = offset
        counts = {name: sum(one.count for one in name_counts if one.name == name) for name in (probe.UPDATE, *COUNTERS)}
        spans = sum(one.count for one in name_counts if one.kind == "span" and (one.cat, one.name) in wanted.codes)
        self._table = _table(names, wanted)
        self._lanes = wanted.lanes
        self._spans = _Pile("spans", _of_spans(wanted), spans, room)
        self._updates = _Pile("updates", _UPDATES, counts[probe.UPDATE], room)
        self._aside, self._garbage = _Pile("aside", _ASIDE, 0, room), _Pile("garbage", _GARBAGE, 0, room)
        self._others = wanted.aside
        self._counters = [
            (name, _Pile(name, _of_counters(name), counts[name], room)) for name in COUNTERS if name in wanted.names
        ]
        self._room = np.empty(0, np.int64)  # for places
        self._piles = [self._spans, self._updates, self._aside, self._garbage, *(pile for _, pile in self._counters)]
        self._kinds = self._by_kind()

    def add(self, one: Slice) -> None:
        """Take a slice."""
        if native.slots is None:
            self._add(one)
        else:
            self._sort(one)

    def _by_kind(self) -> NDArray[np.uint8]:
        """For records of own threads or not, of each code and kind: the place of their pile, from 1 on; 0: they are not wanted."""
        found = np.zeros((2, 256, 16), np.uint8)
        for place, (name, _) in enumerate(self._counters, 5):
            found[:, _COUNTER + COUNTERS.index(name), [record.COUNTER, record.COUNTER | record.OPEN]] = place
        found[:, _UPDATE, record.MARK] = 2
        found[0, _WAIT, record.SPAN] = 3 * self._others
        found[1, _GC, record.SPAN] = 4
        found[1, :_COUNTER, record.SPAN] = 1
        return found

    def _sort(self, one: Slice) -> None:
        """Take a slice, in C."""
        count, rows = len(one.slots), len(self._piles) + 1
        if rows * count > len(self._room):
            self._room = np.empty(rows * count, np.int64)
        codes, places = np.empty(count, np.uint8), self._room[: rows * count].reshape(rows, count)
        one = one._replace(slots=np.ascontiguousarray(one.slots))
        own = _among(one.threads, self._lanes)
        many = native.slots.sort(one.slots, one.kinds, one.what, own, self._table, self._kinds, codes, places, _OTHER)
        for pile, some, length in zip(self._piles, places[1:], many[1:], strict=False):
            if length:
                where = some[:length]
                if pile is self._aside:
                    where = where[one.slots["key"][where] != NONE]
                pile.add(_Some(one, codes, self._offset, where))

    def _add(self, one: Slice) -> None:
        """The same with NumPy."""
        codes = np.take(self._table, one.slots["name"], mode="clip")
        codes[np.flatnonzero(one.what == BAD)] = _OTHER
        some = _Some(one, codes, self._offset)
        counters = (one.kinds & record.KIND_MASK) == record.COUNTER
        for name, pile in self._counters:
            pile.add(some.where(counters & (codes == _COUNTER + COUNTERS.index(name))))
        kinds = one.kinds & (record.KIND_MASK | record.OPEN)
        self._updates.add(some.where((codes == _UPDATE) & (kinds == record.MARK)))
        own = _among(one.threads, self._lanes)
        if self._others:
            waits = (codes == _WAIT) & (kinds == record.SPAN) & (one.slots["key"] != NONE) & ~own
            self._aside.add(some.where(waits))
        done = (kinds == record.SPAN) & own
        self._garbage.add(some.where((codes == _GC) & done))
        self._spans.add(some.where((codes < _COUNTER) & done))

    def trail(self) -> Trail:
        """All of it."""
        counters = {name: pile.ordered() for name, pile in self._counters}
        spans, updates = self._spans.ordered(), self._updates.ordered()
        return Trail(spans, updates, self._aside.ordered(), self._garbage.ordered(), counters)


class _Some:
    """Some records of a slice, as columns."""

    def __init__(
        self, one: Slice, codes: NDArray[np.uint8], offset: int, places: NDArray[np.intp] | tuple[()] = ()
    ) -> None:
        self._slice, self._codes, self._offset, self._places = one, codes, offset, places
        self._starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def where(self, chosen: NDArray[np.bool_]) -> _Some:
        """Some of them."""
        return _Some(self._slice, self._codes, self._offset, np.flatnonzero(chosen))

    def fill(self, name: str, out: NDArray[Any]) -> None:
        """Write one column. A damaged time runs over instead of stopping the reader."""
        if name == "code":
            np.take(self._codes, self._places, out=out, mode="clip")
        elif name == "lane":
            out[:] = self._slice.threads[self._places]
        elif name == "start_ns":
            self._records("start", out)
            out += self._offset
            self._starts = out
        elif name == "end_ns":
            self._records("dur", out)
            out += self._starts
        elif name in ("value", "dur_ns"):
            self._records("dur", out)
        elif name in _GAPS:
            out[:] = _with_gaps(name, self._slice.slots[name][self._places])
        else:
            self._records(name, out)

    def _records(self, name: str, out: NDArray[Any]) -> None:
        """Write a field of the records, whose bytes are taken for what `out` has."""
        if native.slots is None:
            out.view(self._slice.slots.dtype[name])[:] = self._slice.slots[name][self._places]
        else:
            native.slots.gather(self._slice.slots, self._places, out, *_FIELDS[name])


class _Pile:
    """Columns that grow. `rows`: so many are expected."""

    def __init__(self, of: str, columns: Sequence[str], rows: int, room: Room) -> None:
        self._columns = {name: room.column(of, name, rows) for name in columns}
        self._room = rows
        self._rows = 0

    def add(self, some: _Some) -> None:
        """Take some rows."""
        end = self._rows + len(some)
        if end > self._room:
            self._room = 2 * end
            self._columns = {name: np.resize(column, self._room) for name, column in self._columns.items()}
        if len(some):
            for name, column in self._columns.items():
                some.fill(name, column[self._rows : end])
        self._rows = end

    def ordered(self) -> Columns:
        """All rows, by their numbers."""
        return _ordered({name: column[: self._rows] for name, column in self._columns.items()})


def _with_gaps(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Steps and epochs, NONE where there is none."""
    return np.where(column == _GAPS[name], NONE, column.astype(np.int64))


def _table(names: Mapping[int, tuple[str, str]], wanted: Wanted) -> NDArray[np.uint8]:
    """For each name id what its records are."""
    marks = {(probe.PROBE, probe.UPDATE): _UPDATE, (probe.PROBE, probe.GC): _GC}
    counted = {(_category(name, wanted), name): _COUNTER + place for place, name in enumerate(COUNTERS)}
    known = {**marks, **counted, **wanted.codes}
    table = np.full(min(max(names, default=0), record.HIGHEST_NAME) + 2, _OTHER, np.uint8)
    for id, name in names.items():
        if 0 < id < len(table) - 1:
            table[id] = known.get(name, _OTHER)
    return table


def _category(counter: str, wanted: Wanted) -> str:
    return probe.LOG if wanted.logged and counter == probe.LOSS else probe.PROBE


def _among(threads: NDArray[np.uint32], lanes: Sequence[int]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = threads == lanes[0] if len(lanes) == 1 else np.isin(threads, lanes)
    return found


# ── sealed tables ────────────────────────────────────────────────────────────────────────────────────────────────────


def read_sealed(connection: duckdb.DuckDBPyConnection, source: str, wanted: Wanted) -> Trail:
    """Read it from sealed tables. `source`: the events of the process, a table and a condition."""
    lanes = f"coalesce(lane, 0) IN ({', '.join(map(str, wanted.lanes)) or 'NULL'})"
    probed = f"{source} AND cat = '{probe.PROBE}' AND name = "
    updates = f"{probed}'{probe.UPDATE}' AND kind = 'mark'"
    waits = f"{source} AND cat = '{probe.PROBE}' AND name IN ('{probe.INPUT_WAIT}', '{probe.PREFETCH}')"
    waits += f" AND kind = 'span' AND NOT open AND key IS NOT NULL AND NOT {lanes}"
    garbage = f"{probed}'{probe.GC}' AND kind = 'span' AND NOT open AND {lanes}"
    counters = {
        name: _asked(connection, _of_counters(name), _sealed_counter(source, name, wanted))
        for name in COUNTERS
        if name in wanted.names
    }
    return Trail(
        _sealed_spans(connection, f"{source} AND kind = 'span' AND NOT open AND {lanes}", wanted),
        _asked(connection, _UPDATES, updates if probe.UPDATE in wanted.names else _NOTHING),
        _asked(connection, _ASIDE, waits if wanted.aside else _NOTHING),
        _asked(connection, _GARBAGE, garbage if probe.GC in wanted.names else _NOTHING),
        counters,
    )


_NOTHING = """
    (SELECT 0::BIGINT AS start_ns, 0::BIGINT AS dur_ns, 0::BIGINT AS key, 0::BIGINT AS seq, 0::BIGINT AS lane, 0::BIGINT AS step,
            0::BIGINT AS epoch, '' AS name, '' AS cat) WHERE false
"""
_SQL = {
    "start_ns": "start_ns",
    "end_ns": "start_ns + dur_ns AS end_ns",
    "dur_ns": "dur_ns",
    "value": "value",
    "seq": "seq::UINTEGER AS seq",
    "lane": "coalesce(lane, 0)::UINTEGER AS lane",
    **{name: f"coalesce({name}, {NO_VALUE}) AS {name}" for name in ("key", "step", "epoch")},
}


def _sealed_counter(source: str, name: str, wanted: Wanted) -> str:
    return f"{source} AND cat = '{_category(name, wanted)}' AND name = {quoted(name)} AND kind = 'counter'"


def _asked(connection: duckdb.DuckDBPyConnection, columns: Sequence[str], source: str) -> Columns:
    return _ordered(arrays(connection, f"SELECT {', '.join(_SQL[name] for name in columns)} FROM {source}"))


def _sealed_spans(connection: duckdb.DuckDBPyConnection, source: str, wanted: Wanted) -> Columns:
    cats, names = sorted({cat for cat, _ in wanted.codes}), sorted({name for _, name in wanted.codes})
    if not names:
        source, cats, names = _NOTHING, [""], [""]
    # The place in a list is found once for each value of a dictionary, where CASE compares each row.
    place = f"(list_position([{_list(names)}], name) - 1)"
    if len(cats) > 1:
        place = f"({place} * {len(cats)} + list_position([{_list(cats)}], cat) - 1)"
    columns = [f"{place}::UINTEGER AS code", *(_SQL[name] for name in _of_spans(wanted)[1:])]
    found = arrays(
        connection,
        f"SELECT {', '.join(columns)} FROM {source} AND cat IN ({_list(cats)}) AND name IN ({_list(names)})",
    )
    table = np.array([wanted.codes.get((cat, name), _OTHER) for name in names for cat in cats], np.uint8)
    found["code"] = table[found["code"]]
    if _OTHER in table:
        right = found["code"] != _OTHER
        found = {name: column[right] for name, column in found.items()}
    return _ordered(found)


def _list(words: Iterable[str]) -> str:
    return ", ".join(quoted(word) for word in words)
