"""Export to Perfetto's own format: tracks of processes, threads, steps, batches and counters, with arrows between them.

Times count from the first event, and the trace says when that was. Arrows lead from each item to its batch, and from there to the
end of the step that used it.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import BinaryIO

from sonde.analysis.run import Run
from sonde.exchange import flows, jsonvalues, rows
from sonde.exchange.nesting import NestedSpan, Nesting
from sonde.exchange.output import Progress, binary_file, ignore
from sonde.exchange.packets import Packets, number
from sonde.exchange.rows import EventRow
from sonde.exchange.tracks import BATCHES, STEPS, Tracks
from sonde.store import probe


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many events it holds."""
    with binary_file(path, gzip) as file:
        packets = Packets(file)
        done = _write(run, packets, progress or ignore)
        packets.flush()
        return done


def _write(run: Run, packets: Packets, progress: Progress) -> int:
    total, done = rows.counted(run), 0
    origin = rows.origin(run)
    tracks = Tracks(rows.processes(run))
    packets.clock(origin)
    for rank, pid in enumerate(dict.fromkeys(tracks.pids.values())):
        packets.process(number(pid), pid, tracks.names[pid], rank)
    slices = _Slices(packets, tracks, origin)
    for batch in rows.batches(run):
        for row in batch:
            slices.add(row)
        done += len(batch)
        progress(done, total)
    slices.close()
    _batches(run, packets, tracks, origin)
    _steps(run, packets, tracks, origin)
    return done


class _Slices:
    """The events of the threads. The ends of spans are written when what comes next on their track begins."""

    def __init__(self, packets: Packets, tracks: Tracks, origin: int) -> None:
        self._packets = packets
        self._tracks = tracks
        self._origin = origin
        self._nesting: Nesting[None] = Nesting(self._end)
        self._uuids: dict[tuple[int, int], int] = {}
        self._counters: set[int] = set()

    def add(self, row: EventRow) -> None:
        """One event; they come thread by thread, in the order of their starts."""
        if row.kind == "counter" and row.value is not None and math.isfinite(row.value):
            self._count(row, row.value)
            return
        uuid = self._track(row)
        self._nesting.above(uuid, row)
        item = (row.cat, row.name) == (probe.PROBE, probe.ITEM)
        self._packets.begin(
            uuid,
            row.start - self._origin,
            row.cat,
            row.name,
            rows.arguments(row),
            instant=row.kind != "span",
            flows=[number(row.process, row.seq)] if item else None,
        )
        if row.kind == "span":
            self._nesting.enter(uuid, row, None)

    def close(self) -> None:
        """Nothing more comes."""
        self._nesting.close()

    def _end(self, span: NestedSpan[None]) -> None:
        self._packets.end(span.track, span.end - self._origin)

    def _track(self, row: EventRow) -> int:
        pid = self._tracks.pids[row.process]
        tid, called = self._tracks.tid(row, self._tracks.strand(row))
        if called is not None:
            self._uuids[pid, tid] = number(pid, tid)
            self._packets.thread(number(pid, tid), pid, tid, called, len(self._uuids))
        return self._uuids[pid, tid]

    def _count(self, row: EventRow, value: float) -> None:
        pid, name = self._tracks.pids[row.process], self._tracks.counter_name(row)
        uuid = number(pid, "counter", name)
        if uuid not in self._counters:
            self._counters.add(uuid)
            self._packets.named(uuid, number(pid), name, counter=True, rank=len(self._counters))
        self._packets.count(uuid, row.start - self._origin, value)


def _batches(run: Run, packets: Packets, tracks: Tracks, origin: int) -> None:
    """A moment for each batch, when it is delivered, to which its items lead."""
    moved = rows.moving(run)
    found = itertools.chain.from_iterable(run.batches(flows.BATCHES_WITH_ITEMS))
    for (process, key, ready, batch, step), members in itertools.groupby(found, key=lambda row: row[:5]):
        items = [number(row[5], row[6]) for row in members if row[5] is not None]
        uuid = _named(packets, tracks, process, BATCHES, "batches")
        into, at = [number(process, "batch", key)], moved(process, ready) - origin
        packets.begin(uuid, at, "step", f"batch {batch}", {"step": step}, flows=into, ends=items)
        packets.end(uuid, at)


def _steps(run: Run, packets: Packets, tracks: Tracks, origin: int) -> None:
    """A slice for each step, and one of no duration at its end, to which its batches lead."""
    moved = rows.moving(run)
    found = itertools.chain.from_iterable(run.batches(flows.STEPS_WITH_BATCHES))
    for (process, start, dur, step), members in itertools.groupby(found, key=lambda row: row[:4]):
        several = list(members)
        epoch, loss = several[0][4:6]
        uuid = _named(packets, tracks, process, STEPS, "steps")
        about = {"step": step, "epoch": epoch, "loss": jsonvalues.plain(loss)}
        about = {key: value for key, value in about.items() if value is not None}
        first = moved(process, start) - origin
        last = first + max(dur - 1, 0)
        packets.begin(uuid, first, "step", f"step {step}", about)
        batches = [number(process, "batch", row[6]) for row in several if row[6] is not None]
        packets.begin(uuid, last, "step", f"step {step} ends", about, ends=batches)
        packets.end(uuid, last)
        packets.end(uuid, first + dur)


def _named(packets: Packets, tracks: Tracks, process: str, tid: int, name: str) -> int:
    """The track of steps or of batches, above the threads of its process."""
    pid = tracks.pids[process]
    uuid = number(pid, tid)
    if tracks.is_new(pid, tid):
        packets.named(uuid, number(pid), name, rank=tid - BATCHES - 1)
    return uuid
