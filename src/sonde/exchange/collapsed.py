"""Export to collapsed stacks, the lines that flame graph tools read: the spans that enclose each other, and the time spent there.

`rank 0;MainThread;compute.step;compute.forward 1250000` says how many nanoseconds a thread spent in the last of these spans itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.records import label
from sonde.analysis.run import Run
from sonde.exchange import rows
from sonde.exchange.nesting import NestedSpan, Nesting
from sonde.exchange.output import Progress, ignore, output_file
from sonde.exchange.tracks import Tracks

MOST_STACKS = 1_000_000
OTHER = "(other stacks)"


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many stacks it holds."""
    with output_file(path, gzip) as file:
        return _write(run, file, progress or ignore)


def _write(run: Run, file: IO[str], progress: Progress) -> int:
    total, done = rows.counted(run), 0
    tracks = Tracks(rows.processes(run))
    stacks = _Stacks()
    for batch in rows.batches(run):
        for row in batch:
            if row.kind == "span":
                called = f"{_word(tracks.names[tracks.pids[row.process]])};{_word(row.thread)}"
                stacks.add(row, tracks.strand(row), called)
        done += len(batch)
        progress(done, total)
    stacks.close()
    file.writelines(f"{stack} {time}\n" for stack, time in sorted(stacks.times.items()) if time > 0)
    return sum(time > 0 for time in stacks.times.values())


class _Stacks:
    """The time that was spent in each stack."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self._nesting: Nesting[str] = Nesting(self._end)

    def add(self, row: rows.EventRow, strand: int, thread: str) -> None:
        above = self._nesting.above(strand, row)
        begin = thread if above is None else above.frame
        self._nesting.enter(strand, row, f"{begin};{_word(label.event(row.cat, row.name))}")

    def close(self) -> None:
        self._nesting.close()

    def _end(self, span: NestedSpan[str]) -> None:
        stack = span.frame
        if stack not in self.times and len(self.times) >= MOST_STACKS:
            stack = OTHER
        self.times[stack] = self.times.get(stack, 0) + max(span.end - span.start - span.inner, 0)


def _word(name: str) -> str:
    """A name that is one part of a line of ASCII: without the signs that separate."""
    return name.encode("ascii", "backslashreplace").decode().replace(";", ":").replace("\n", " ").strip() or "(unnamed)"
