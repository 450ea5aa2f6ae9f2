"""Loads raw process folders: their records into columns, and one row for each process."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.columns import Columns, PackedRows, part_size
from sonde.analysis.records.names import NameCount, NameCounter
from sonde.analysis.records.steponly import FAR, HIGHEST_NAME, Plain, last_of, middle_of
from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.alive import resolve_replaced, state_of
from sonde.store.folder import LEDGER_FILE, SEGMENT_FILE
from sonde.store.reading.ledger import note_losses
from sonde.store.reading.reader import Chunk, ProcessRecording, read_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from sonde.store.process import Info, Thread

OPEN_FILES = 64
# Of longer runs, the records that only steps are made of stay in their files until somebody asks for all events.
MANY = 1 << 20

Offsets = dict[tuple[str, str | None], int]


class ThreadRecords(NamedTuple):
    """A thread of a process, and what every event in it has in common."""

    number: int  # of the process, for `Arguments`
    process: str
    info: Info
    ordinal: int
    thread: Thread | None


class ProcessSummary(NamedTuple):
    """What was seen of a process: the names of its records, and when the first and the last moment of them were."""

    named: list[NameCount]
    first: int | None
    last: int | None


class Loaded(NamedTuple):
    """Raw processes, ready for DuckDB. The first name and the first lane have the id 1 and 0.

    `rest` gives the records that are not among these parts, as they were left in the files; None: there are none.
    """

    parts: list[PackedRows]
    rows: list[dict[str, Any]]
    lanes: list[ThreadRecords]
    names: list[tuple[str, str]]
    recordings: list[ProcessRecording]
    seen: list[ProcessSummary]
    notes: list[str]
    rest: Callable[[], list[PackedRows]] | None = None


class ArgumentReader:
    """The arguments of the events of raw processes, read when they are asked for."""

    def __init__(self, recordings: list[ProcessRecording]) -> None:
        self._recordings = recordings
        self._open: OrderedDict[int, ProcessRecording] = OrderedDict()
        self._lock = threading.Lock()  # a query asks from several threads at once

    def text(self, number: int, id: int) -> str | None:
        """The arguments `id` of process `number`, as JSON text."""
        with self._lock:
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


class _Left(NamedTuple):
    """A process of which some records are left in their file: the usual ones of steps, of which there are many."""

    recording: ProcessRecording
    number: int
    process: str
    offset: int
    table: NDArray[np.uint32]  # of its names
    plain: Plain

    def passes(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which records of a chunk are left."""
        return self.plain.of(chunk.records, chunk.records["kind"], chunk.records["seq"])


def _some(chunk: Chunk, chosen: NDArray[np.bool_]) -> Chunk:
    """Some records of a chunk."""
    places = np.flatnonzero(chosen)
    return Chunk(np.take(chunk.records, places), chunk.threads[places], chunk.depths[places], chunk.counters)


class FolderLoader:
    """Takes one process folder after the other."""

    def __init__(self, offsets: Offsets, rows: int, *, ordered: bool) -> None:
        self._offsets = offsets
        self._ordered = ordered
        self._columns = Columns(part_size(rows), ordered=ordered)
        # Apart, because they need more room than spans; not if the rows are to stay in order.
        self._counters = Columns(part_size(rows))
        self._plain = Columns(part_size(rows), ordered=True)  # of rows in order, those that only tables are made of
        self._names: dict[tuple[str, str], int] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        self._rows = rows
        self._long = rows > MANY and not ordered
        self._left: list[_Left] = []
        self._called: list[tuple[str, int]] = []  # what the tables call each process, and the offset of its clock
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
        self.loaded.seen.append(self._take(recording, number, process, offset))
        recording.close()
        note_losses(folder / LEDGER_FILE, recording.notes)
        self._called.append((process, offset))

    def finish(self) -> Loaded:
        """Everything that was taken."""
        self.loaded.parts.extend(self._columns.finish() + self._counters.finish())
        self.loaded.names.extend(self._names)
        recordings = self.loaded.recordings
        infos = resolve_replaced([one.info for one in recordings])
        for recording, info, called, seen in zip(recordings, infos, self._called, self.loaded.seen, strict=True):
            self.loaded.rows.append(_row(recording, info, *called, seen.last))
        if self._ordered:
            return self.loaded._replace(rest=self._plain.finish)
        return self.loaded._replace(rest=self._load_rest if self._left else None)

    def _take(self, recording: ProcessRecording, number: int, process: str, offset: int) -> ProcessSummary:
        """Take the records; of a long run those that only steps are made of are left in the file."""
        self._columns.next_process()
        self._plain.next_process()
        table = self._name_table(recording)
        first, last, unnamed, left = FAR, -1, 0, 0
        name_counts = NameCounter(recording.names)
        one = _Left(recording, number, process, offset, table, self._steponly(recording))
        for chunk in recording.chunks():
            names = np.take(table, chunk.records["name"], mode="clip")
            unnamed += len(names) - int(np.count_nonzero(names))
            first, last = min(first, int(chunk.records["start"].min())), max(last, _last(chunk))
            name_counts.add(chunk.records["name"], chunk.records["kind"], chunk.threads)
            left += self._take_chunk(one, chunk)
        if left:
            self._left.append(one)
        if unnamed:
            recording.notes.append(f"names.jsonl lacks the names of {unnamed} records")
        return ProcessSummary(name_counts.rows(), first if last >= 0 else None, last if last >= 0 else None)

    def _steponly(self, recording: ProcessRecording) -> Plain:
        if self._ordered:
            return Plain(recording.names, -1, -1, sealed=True)
        return Plain(recording.names, *middle_of(len(recording)))

    def _take_chunk(self, of: _Left, chunk: Chunk) -> int:
        """Take a chunk; how many of its records are left in the file. In order, these are taken too, but apart."""
        if not (self._ordered or self._long):
            self._add(of, chunk, self._columns_for(chunk))
            return 0
        passes = of.passes(chunk)
        self._add(of, _some(chunk, ~passes), self._columns_for(chunk))
        if self._ordered:
            self._add(of, _some(chunk, passes), self._plain)
            return 0
        return int(np.count_nonzero(passes))

    def _columns_for(self, chunk: Chunk) -> Columns:
        return self._counters if chunk.counters and not self._ordered else self._columns

    def _add(self, of: _Left, chunk: Chunk, columns: Columns) -> None:
        if not len(chunk.records):
            return
        names = np.take(of.table, chunk.records["name"], mode="clip")
        columns.add(chunk, self._threads_of(of.recording, of.number, of.process, chunk.threads), names, of.offset)

    def _load_rest(self) -> list[PackedRows]:
        """The records that were left in the files."""
        self._columns, self._counters = Columns(part_size(self._rows)), Columns(part_size(self._rows))
        for one in self._left:
            for chunk in one.recording.chunks():
                self._add(one, _some(chunk, one.passes(chunk)), self._columns_for(chunk))
            one.recording.close()
        return self._columns.finish() + self._counters.finish()

    def _name_table(self, recording: ProcessRecording) -> NDArray[np.uint32]:
        """For each name id of the process, the id in the whole run; 0 where there is none."""
        known = {id: name for id, name in recording.names.items() if 0 < id <= HIGHEST_NAME}
        table = np.zeros(max(known, default=0) + 2, dtype=np.uint32)
        for id, name in known.items():
            table[id] = self._names.setdefault(name, len(self._names) + 1)
        return table

    def _threads_of(
        self, recording: ProcessRecording, number: int, process: str, threads: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """For each thread ordinal the lane. Neighbours mostly have the same one."""
        turns = np.append(0, np.flatnonzero(threads[1:] != threads[:-1]) + 1)
        ordinals = np.unique(threads[turns])
        lanes = np.array([self._thread(recording, number, process, int(one)) for one in ordinals], dtype=np.uint32)
        return np.repeat(lanes[np.searchsorted(ordinals, threads[turns])], np.diff(turns, append=len(threads)))

    def _thread(self, recording: ProcessRecording, number: int, process: str, ordinal: int) -> int:
        key = (number, ordinal)
        if key not in self._lanes:
            self._lanes[key] = len(self._lanes)
            self.loaded.lanes.append(
                ThreadRecords(number, process, recording.info, ordinal, recording.threads.get(ordinal))
            )
        return self._lanes[key]


def offsets_of(infos: Iterable[Info], known: Offsets) -> Offsets:
    """What to add to the monotonic clock of each (host, boot) for wall-clock time: as its earliest process saw it."""
    earliest: dict[tuple[str, str | None], Any] = {}
    for info in infos:
        key = (info.host, info.boot_id)
        if info.start is not None and (key not in earliest or info.start < earliest[key]):
            earliest[key] = info.start
    return {key: start.wall_ns - start.mono_ns for key, start in earliest.items()} | known


def _offset(recording: ProcessRecording, offsets: Offsets) -> int:
    info = recording.info
    found = offsets.get((info.host, info.boot_id))
    if found is None:
        found = next((offset for (host, _), offset in offsets.items() if host == info.host), None)
    if found is None:
        recording.notes.append("its wall-clock times are unknown: process.json has no clock pair")
        return 0
    return found


def _last(chunk: Chunk) -> int:
    """The last moment that records show, on the monotonic clock."""
    start = chunk.records["start"]
    return last_of(start, start if chunk.counters else start + chunk.records["dur"].view(np.uint64))


def _row(recording: ProcessRecording, info: Info, process: str, offset: int, last: int | None) -> dict[str, Any]:
    lost = recording.lost or {}
    row: dict[str, Any] = {
        **info._asdict(),
        "start_ns": None if info.start is None else info.start.mono_ns + offset,
        "end_ns": None if info.end is None else info.end.mono_ns + offset,
        "drops": recording.missing if recording.counted else None,
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
    if rows > MANY:
        _keep_what_is_freed()
    loader = FolderLoader(offsets, rows, ordered=ordered)
    for done, (folder, process) in enumerate(folders):
        if progress is not None:
            progress(done, len(folders))
        loader.add(folder, process)
    if progress is not None:
        progress(len(folders), len(folders))
    return loader.finish()


def _keep_what_is_freed() -> None:
    """Let the C library of Linux keep up to 64 MB of freed memory: it takes the size of what was freed last as a measure.

    Without it, arrays of some MB go back to the system and are cleared anew each time, which takes longer than to fill them.
    """
    np.empty((1 << 25) - (1 << 16), dtype=np.uint8)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def notes_text(notes: list[str]) -> str | None:
    """Notes as they stand in the table of processes."""
    return json.dumps(notes) if notes else None
