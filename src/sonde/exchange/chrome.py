"""Export to the Chrome trace format (JSON), which Perfetto and chrome://tracing open.

Times count from the first event: a viewer keeps them as float64, which holds nanoseconds of a run but not of an epoch.
A span that is still open reaches to the last time its process was seen, and has the argument `open`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.run import Run
from sonde.exchange import rows, values
from sonde.exchange.output import Progress, ignore, opened
from sonde.exchange.rows import Process, Row
from sonde.exchange.strands import Strands

INVENTED = 10_000_000  # larger than any pid of Linux: numbers for tracks that are no process or thread of their own


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many events it holds."""
    with opened(path, gzip) as file:
        return _write(run, file, progress or ignore)


def _write(run: Run, file: IO[str], progress: Progress) -> int:
    total, done = rows.counted(run), 0
    origin = _origin(run)
    about = {"run": run.id, "recorded by": "sonde", "start_ns": str(origin)}
    file.write(f'{{"displayTimeUnit":"ns","otherData":{values.text(about)},"traceEvents":[\n')
    tracks = _Tracks(rows.processes(run))
    file.write(",\n".join(tracks.process_lines()))  # at least one, if there are events
    for batch in rows.batches(run):
        file.writelines(f",\n{_line(row, tracks, origin)}" for row in batch)
        done += len(batch)
        progress(done, total)
    file.write("\n]}\n")
    return done


def _origin(run: Run) -> int:
    ((first,),) = run.sql("SELECT coalesce(min(start_ns), 0) FROM events").fetchall()
    return int(first)


class _Tracks:
    """Gives each process a pid and each strand of each thread a tid, so that no two share one."""

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes
        self.pids: dict[str, int] = {}
        self.tids: dict[tuple[str, int, int], int] = {}
        self.strands: dict[tuple[str, int], Strands] = {}
        self.taken: set[tuple[int, int]] = set()
        for index, process in enumerate(processes):
            taken = process.pid in self.pids.values()  # on several hosts, or after an exec
            self.pids[process.id] = INVENTED + index if taken else process.pid

    def process_lines(self) -> list[str]:
        """The names and the order of the processes."""
        hosts = len({process.host for process in self.processes})
        lines = []
        for index, process in enumerate(self.processes):
            pid = self.pids[process.id]
            name = f"{process.label} on {process.host}" if hosts > 1 else process.label
            lines.append(_metadata("process_name", pid, pid, {"name": name}))
            lines.append(_metadata("process_sort_index", pid, pid, {"sort_index": index}))
        return lines

    def strand(self, row: Row) -> int:
        """On which strand of its thread an event lies."""
        thread = (row.process, row.lane)
        strands = self.strands.get(thread)
        if strands is None:
            self.strands.clear()  # events come thread by thread: the one before is complete
            strands = self.strands[thread] = Strands()
        return strands.place(row.seq, row.parent, row.start, row.end)

    def tid(self, row: Row, strand: int) -> tuple[int, str | None]:
        """The tid of a strand, and, the first time, the lines that name it."""
        key = (row.process, row.lane, strand)
        tid = self.tids.get(key)
        if tid is not None:
            return tid, None
        pid = self.pids[row.process]
        free = strand == 0 and (pid, row.tid) not in self.taken
        tid = row.tid if free else INVENTED + len(self.taken)
        self.tids[key] = tid
        self.taken.add((pid, tid))
        name = row.thread if strand == 0 else f"{row.thread} (task {strand + 1})"
        named = _metadata("thread_name", pid, tid, {"name": name})
        ordered = _metadata("thread_sort_index", pid, tid, {"sort_index": len(self.taken)})
        return tid, f"{named},\n{ordered},\n"


def _line(row: Row, tracks: _Tracks, origin: int) -> str:
    """One event, after the names of its track if that is new."""
    counter = row.kind == "counter" and row.value is not None and math.isfinite(row.value)
    tid, naming = tracks.tid(row, 0 if counter else tracks.strand(row))
    at = (
        f'{naming or ""}{{"name":{values.word(row.name)},"cat":{values.word(row.cat)},'
        f'"pid":{tracks.pids[row.process]},"tid":{tid},"ts":{_us(row.start - origin)}'
    )
    if counter:  # every argument of a counter is a series of its own, so it gets none but its value
        return f'{at},"ph":"C","args":{{"value":{row.value!r}}}}}'
    if row.kind == "span":
        return f'{at},"ph":"X","dur":{_us(row.end - row.start)},"args":{_arguments(row)}}}'
    return f'{at},"ph":"i","s":"t","args":{_arguments(row)}}}'


def _arguments(row: Row) -> str:
    found: dict[str, object] = {}
    if row.step is not None:
        found["step"] = row.step
    if row.epoch is not None:
        found["epoch"] = row.epoch
    if row.key is not None:
        found["count" if row.name.endswith((".iter", ".block")) else "key"] = values.plain(row.key)
    if row.error:
        found["error"] = True
    if row.open:
        found["open"] = True
    if row.kind == "counter":  # only one that no viewer can draw comes here
        found["value"] = values.plain(row.value)
    if row.args:
        found |= values.arguments(row.args)
    return values.text(found) if found else "{}"


def _metadata(name: str, pid: int, tid: int, args: dict[str, object]) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{values.text(args)}}}'


def _us(ns: int) -> str:
    whole, part = divmod(ns, 1000)
    return f"{whole}.{part:03}" if part else str(whole)
