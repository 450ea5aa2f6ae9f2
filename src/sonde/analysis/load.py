"""Loads raw process folders: their records into columns, and one row for each process."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.census import Census, Named
from sonde.analysis.columns import Columns, Part, part_size
from sonde.errors import RunUnreadable
from sonde.store import probe, record
from sonde.store.alive import state_of
from sonde.store.entries import note_losses
from sonde.store.folder import LEDGER_FILE, SEGMENT_FILE
from sonde.store.reader import Chunk, Recording, read_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sonde.store.card import Info, Thread

HIGHEST_NAME = 2 * record.MAX_NAMES  # name ids above this are damage
FAR = 2**62  # times beyond this are damage
OPEN_FILES = 64
# Of longer runs, the records that only steps are made of stay in their files until somebody asks for all events.
MANY = 1 << 20
MIDDLE = 20_000  # records in the middle of a process that are loaded all the same
_STEPS = {
    (probe.PROBE, name)
    for name in (
        probe.INPUT_WAIT, probe.H2D, probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER, probe.UPDATE, probe.SAMPLES, probe.LOSS
    )
}  # fmt: skip
_NUMBER = 2**28 - 1  # of a batch, in its key

Offsets = dict[tuple[str, str | None], int]


class Lane(NamedTuple):
    """A thread of a process, and what every event in it has in common."""

    number: int  # of the process, for `Arguments`
    process: str
    info: Info
    ordinal: int
    thread: Thread | None


class Seen(NamedTuple):
    """What was seen of a process: the names of its records, and when the first and the last moment of them were."""

    named: list[Named]
    first: int | None
    last: int | None


class Loaded(NamedTuple):
    """Raw processes, ready for DuckDB. The first name and the first lane have the id 1 and 0.

    `rest` loads the records that were left in the files; None: there are none.
    """

    parts: list[Part]
    rows: list[dict[str, Any]]
    lanes: list[Lane]
    names: list[tuple[str, str]]
    recordings: list[Recording]
    seen: list[Seen]
    notes: list[str]
    rest: Callable[[], list[Part]] | None = None


class Arguments:
    """The arguments of the events of raw processes, read when they are asked for."""

    def __init__(self, recordings: list[Recording]) -> None:
        self._recordings = recordings
        self._open: OrderedDict[int, Recording] = OrderedDict()

    def text(self, number: int, id: int) -> str | None:
        """The arguments `id` of process `number`, as JSON text."""
        found = self._open.pop(number, None) or self._recordings[number]
        self._open[number] = found
        if len(self._open) > OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return found.args(id)

    def close(self) -> None:
        """Close all files."""
        for one in self._open.values():
            one.close()
        self._open.clear()


class _Left:
    """A process of which some records were left in their file: the usual ones of steps, of which there are many."""

    def __init__(self, recording: Recording, number: int, process: str, offset: int, table: NDArray[np.uint32]) -> None:
        import numpy as np

        self.recording, self.number, self.process, self.offset, self.table = recording, number, process, offset, table
        self._low = middle_of(len(recording))
        self._steps = np.zeros(len(table), dtype=np.bool_)
        self._waits = np.zeros(len(table), dtype=np.bool_)
        self._updates = np.zeros(len(table), dtype=np.bool_)
        for id, name in recording.names.items():
            if 0 < id < len(table) - 1:
                self._steps[id] = name in _STEPS
                self._waits[id] = name == (probe.PROBE, probe.INPUT_WAIT)
                self._updates[id] = name == (probe.PROBE, probe.UPDATE)

    def usual(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which records of a chunk are left: completed, without arguments; no first batch of an iterator, no aborted step."""
        import numpy as np

        records = chunk.records
        ids = np.minimum(records["name"], len(self.table) - 1)
        found: NDArray[np.bool_] = self._steps[ids] & (records["kind"] <= record.MARK) & (records["args"] == 0)
        found &= (records["key"] & _NUMBER != 0) | ~self._waits[ids]
        found &= (records["key"] & probe.UPDATE_ABORTED == 0) | ~self._updates[ids]
        seqs = records["seq"]
        if seqs[0] <= self._low + MIDDLE and seqs[-1] >= self._low:
            found &= (seqs < self._low) | (seqs > self._low + MIDDLE)
        return found


def middle_of(events: int) -> int:
    """Where the records begin that are loaded in any case: those in the middle of a process."""
    return max(0, (events - MIDDLE) // 2)


def _some(chunk: Chunk, chosen: NDArray[np.bool_]) -> Chunk:
    """Some records of a chunk."""
    import numpy as np

    places = np.flatnonzero(chosen)
    return Chunk(np.take(chunk.records, places), chunk.threads[places], chunk.depths[places], chunk.counters)


class Loader:
    """Takes one process folder after the other."""

    def __init__(self, offsets: Offsets, rows: int, *, ordered: bool) -> None:
        self._offsets = offsets
        self._ordered = ordered
        self._columns = Columns(part_size(rows), ordered=ordered)
        # Apart, because they need more room than spans; not if the rows are to stay in order.
        self._counters = Columns(part_size(rows))
        self._names: dict[tuple[str, str], int] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        self._rows = rows
        self._left: list[_Left] = []
        self.loaded = Loaded([], [], [], [], [], [], [])

    def add(self, folder: Path, process: str) -> None:
        """Take a process folder; `process` is what the tables call it."""
        try:
            recording = read_process(folder)
        except RunUnreadable as error:
            self.loaded.notes.append(str(error))
            return
        number = len(self.loaded.recordings)
        self.loaded.recordings.append(recording)
        offset = _offset(recording, self._offsets)
        seen = self._take(recording, number, process, offset)
        self.loaded.seen.append(seen)
        recording.close()
        note_losses(folder / LEDGER_FILE, recording.notes)
        self.loaded.rows.append(_row(recording, process, offset, seen.last))

    def finish(self) -> Loaded:
        """Everything that was taken."""
        self.loaded.parts.extend(self._columns.finish() + self._counters.finish())
        self.loaded.names.extend(self._names)
        return self.loaded._replace(rest=self._load_rest if self._left else None)

    def _take(self, recording: Recording, number: int, process: str, offset: int) -> Seen:
        """Take the records."""
        import numpy as np

        self._columns.next_process()
        table = self._name_table(recording)
        first, last, unnamed, left = FAR, -1, 0, 0
        census, one = Census(recording.names), _Left(recording, number, process, offset, table)
        for chunk in recording.chunks():
            names = table[np.minimum(chunk.records["name"], len(table) - 1)]
            unnamed += len(names) - int(np.count_nonzero(names))
            first, last = min(first, int(chunk.records["start"].min())), max(last, _last(chunk))
            census.add(chunk)
            if self._rows <= MANY or self._ordered:
                self._add(one, chunk)
                continue
            usual = one.usual(chunk)
            left += int(np.count_nonzero(usual))
            self._add(one, _some(chunk, ~usual))
        if left:
            self._left.append(one)
        if unnamed:
            recording.notes.append(f"names.jsonl lacks the names of {unnamed} records")
        return Seen(census.rows(), first if last >= 0 else None, last if last >= 0 else None)

    def _add(self, of: _Left, chunk: Chunk) -> None:
        import numpy as np

        if not len(chunk.records):
            return
        names = of.table[np.minimum(chunk.records["name"], len(of.table) - 1)]
        columns = self._counters if chunk.counters and not self._ordered else self._columns
        columns.add(chunk, self._lanes_of(of.recording, of.number, of.process, chunk.threads), names, of.offset)

    def _load_rest(self) -> list[Part]:
        """The records that were left in the files."""
        self._columns, self._counters = Columns(part_size(self._rows)), Columns(part_size(self._rows))
        for one in self._left:
            for chunk in one.recording.chunks():
                self._add(one, _some(chunk, one.usual(chunk)))
            one.recording.close()
        return self._columns.finish() + self._counters.finish()

    def _name_table(self, recording: Recording) -> NDArray[np.uint32]:
        """For each name id of the process, the id in the whole run; 0 where there is none."""
        import numpy as np

        known = {id: name for id, name in recording.names.items() if 0 < id <= HIGHEST_NAME}
        table = np.zeros(max(known, default=0) + 2, dtype=np.uint32)
        for id, name in known.items():
            table[id] = self._names.setdefault(name, len(self._names) + 1)
        return table

    def _lanes_of(
        self, recording: Recording, number: int, process: str, threads: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """For each thread ordinal the lane. Neighbours mostly have the same one."""
        import numpy as np

        turns = np.append(0, np.flatnonzero(threads[1:] != threads[:-1]) + 1)
        ordinals = np.unique(threads[turns])
        lanes = np.array([self._lane(recording, number, process, int(one)) for one in ordinals], dtype=np.uint32)
        return np.repeat(lanes[np.searchsorted(ordinals, threads[turns])], np.diff(turns, append=len(threads)))

    def _lane(self, recording: Recording, number: int, process: str, ordinal: int) -> int:
        key = (number, ordinal)
        if key not in self._lanes:
            self._lanes[key] = len(self._lanes)
            self.loaded.lanes.append(Lane(number, process, recording.info, ordinal, recording.threads.get(ordinal)))
        return self._lanes[key]


def offsets_of(infos: Iterable[Info], known: Offsets) -> Offsets:
    """What to add to the monotonic clock of each (host, boot) for wall-clock time: as its earliest process saw it."""
    earliest: dict[tuple[str, str | None], Any] = {}
    for info in infos:
        key = (info.host, info.boot_id)
        if info.start is not None and (key not in earliest or info.start < earliest[key]):
            earliest[key] = info.start
    return {key: start.wall_ns - start.mono_ns for key, start in earliest.items()} | known


def _offset(recording: Recording, offsets: Offsets) -> int:
    info = recording.info
    found = offsets.get((info.host, info.boot_id))
    if found is None:
        found = next((offset for (host, _), offset in offsets.items() if host == info.host), None)
    if found is None:
        recording.notes.append("its times cannot be laid on the calendar: process.json tells no clock pair")
        return 0
    return found


def _last(chunk: Chunk) -> int:
    """The last moment that records tell of, on the monotonic clock."""
    import numpy as np

    start = chunk.records["start"]
    ends = start if chunk.counters else start + chunk.records["dur"].view(np.uint64)
    last = int(ends.max())
    if last < FAR:
        return last
    near = np.where(ends < FAR, ends, start)  # what has a damaged duration began at least
    return int(near.max(where=near < FAR, initial=0))


def _row(recording: Recording, process: str, offset: int, last: int | None) -> dict[str, Any]:
    info = recording.info
    lost = recording.lost or {}
    row: dict[str, Any] = {
        **info._asdict(),
        "start_ns": None if info.start is None else info.start.mono_ns + offset,
        "end_ns": None if info.end is None else info.end.mono_ns + offset,
        "drops": recording.missing,
        "state": state_of(info),
        "last_ns": None if last is None else last + offset,
        "events": len(recording),
        "process": process,
        "offset_ns": offset,
        "corrupt": recording.corrupt,
        "notes": recording.notes,  # as it is: reading arguments may add to it
    }
    for reason in ("space", "cap", "ring", "args"):
        row[f"lost_{reason}"] = min(lost.get(reason, 0), FAR)
    return row


def load(
    folders: list[tuple[Path, str]],
    offsets: Offsets,
    progress: Callable[[int, int], None] | None = None,
    *,
    ordered: bool = False,
) -> Loaded:
    """Load process folders, given with what the tables call them. `ordered`: the rows come in the order of a sealed run."""
    rows = sum(_size(folder / SEGMENT_FILE) for folder, _ in folders) // record.RECORD_SIZE
    loader = Loader(offsets, rows, ordered=ordered)
    for done, (folder, process) in enumerate(folders):
        if progress is not None:
            progress(done, len(folders))
        loader.add(folder, process)
    if progress is not None:
        progress(len(folders), len(folders))
    return loader.finish()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def notes_text(notes: list[str]) -> str | None:
    """Notes as they stand in the table of processes."""
    return json.dumps(notes) if notes else None
