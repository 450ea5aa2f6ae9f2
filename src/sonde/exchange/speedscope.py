"""Export to speedscope's file format: one profile for each thread, with its spans as an ordered flame graph."""

from __future__ import annotations

from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.records import label
from sonde.analysis.run import Run
from sonde.exchange import jsonvalues, rows
from sonde.exchange.nesting import NestedSpan, Nesting
from sonde.exchange.output import Progress, ignore, output_file
from sonde.exchange.rows import EventRow
from sonde.exchange.tracks import Tracks
from sonde.version import __version__

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many spans it holds."""
    with output_file(path, gzip) as file:
        return _write(run, file, progress or ignore)


def _write(run: Run, file: IO[str], progress: Progress) -> int:
    total, done = rows.counted(run), 0
    about = {"$schema": SCHEMA, "exporter": f"sonde {__version__}", "name": run.name, "activeProfileIndex": 0}
    file.write(f'{jsonvalues.text(about)[:-1]},"profiles":[')
    profiles = _Profiles(run, file)
    for batch in rows.batches(run):
        for row in batch:
            if row.kind == "span":
                profiles.add(row)
        done += len(batch)
        progress(done, total)
    profiles.close()
    frames = [{"name": name} for name in profiles.frames]
    file.write(f'],"shared":{{"frames":{jsonvalues.text(frames)}}}}}\n')
    return profiles.count


class _Profiles:
    """Writes profile after profile. A thread whose spans overlap has several; each is kept until the thread is complete."""

    def __init__(self, run: Run, file: IO[str]) -> None:
        self.frames: dict[str, int] = {}
        self.count = 0
        self._file = file
        self._origin = rows.origin(run)
        self._tracks = Tracks(rows.processes(run))
        self._nesting: Nesting[int] = Nesting(self._end)
        self._thread: tuple[str, int] | None = None
        self._name = ""
        self._first = True  # no profile was written yet
        self._events = 0  # of the profile that is being written
        self._last = 0
        self._aside: list[list[EventRow]] = []  # spans of the thread that are on a strand of their own

    def add(self, row: EventRow) -> None:
        """One span; they come thread by thread, in the order of their starts."""
        if (row.process, row.lane) != self._thread:
            self._finish_thread()
            self._thread = (row.process, row.lane)
            process = self._tracks.names[self._tracks.pids[row.process]]
            self._name = f"{process}, {row.thread}"
        strand = self._tracks.strand(row)
        if strand:
            self._aside += [[] for _ in range(strand - len(self._aside))]
            self._aside[strand - 1].append(row)
        else:
            self._span(row, self._name)

    def close(self) -> None:
        """Nothing more comes."""
        self._finish_thread()

    def _finish_thread(self) -> None:
        self._finish()
        for number, spans in enumerate(self._aside):
            for row in spans:
                self._span(row, f"{self._name} (task {number + 2})")
            self._finish()
        self._aside.clear()

    def _span(self, row: EventRow, name: str) -> None:
        if not self._events:
            first = "" if self._first else ","
            self._first = False
            head = jsonvalues.text({"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0})
            self._file.write(f'{first}\n{head[:-1]},"events":[')
        self._nesting.above(0, row)
        frame = self.frames.setdefault(label.event(row.cat, row.name), len(self.frames))
        self._event("O", frame, row.start)
        self._nesting.enter(0, row, frame)
        self.count += 1

    def _end(self, span: NestedSpan[int]) -> None:
        self._event("C", span.frame, span.end)

    def _event(self, kind: str, frame: int, at: int) -> None:
        comma = "," if self._events else ""
        self._events += 1
        self._last = at - self._origin
        self._file.write(f'{comma}{{"type":"{kind}","frame":{frame},"at":{self._last}}}')

    def _finish(self) -> None:
        """The profile is complete."""
        self._nesting.close()
        if self._events:
            self._file.write(f'],"endValue":{self._last}}}')
            self._events = 0
