"""Export to the Chrome trace format (JSON), which Perfetto and chrome://tracing open.

Times count from the first event: a viewer keeps them as float64, which holds nanoseconds of a run but not of an epoch.
A span that is still open reaches to the last time its process was seen, and has the argument `open`. The steps of each process
have a track of their own, and so have its batches; arrows lead from each item to its batch, and from there to the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.records import label
from sonde.analysis.run import Run
from sonde.exchange import rows, values
from sonde.exchange.output import Progress, ignore, output_file
from sonde.exchange.rows import EventRow, ExportedProcess
from sonde.exchange.strands import Strands
from sonde.store import probe

STEPS, BATCHES = 9_999_998, 9_999_999  # tids of the tracks of steps and of batches
INVENTED = 10_000_000  # larger than any pid of Linux: numbers for tracks that are no process or thread of their own


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many events it holds."""
    with output_file(path, gzip) as file:
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
    for line in (*_steps(run, tracks, origin), *_arrows(run, tracks, origin)):
        file.write(f",\n{line}")
    file.write("\n]}\n")
    return done


def _origin(run: Run) -> int:
    ((first,),) = run.sql("SELECT coalesce(min(start_ns), 0) FROM events").fetchall()
    return int(first)


class _Tracks:
    """Gives each process a pid and each strand of each thread a tid, so that no two share one.

    Loader workers of one number that follow each other, as those of one epoch after another, share the pid of the first.
    """

    def __init__(self, processes: list[ExportedProcess]) -> None:
        self.processes = processes
        self.pids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.tids: dict[tuple[int, int, int], int] = {}
        self.strands: dict[tuple[str, int], Strands] = {}
        self.taken: set[tuple[int, int]] = set()
        self.aside: dict[
            tuple[str, int], int
        ] = {}  # the tids of items that are not on the first strand of their thread
        ends: dict[int, int] = {}
        alike: dict[tuple[str, str], list[int]] = {}  # the pids of what has one label on one host
        for index, process in enumerate(processes):
            others = alike.setdefault((process.host, process.label), [])
            before = [pid for pid in others if process.worker is not None and ends[pid] <= process.start]
            taken = process.pid in ends  # on several hosts, or after an exec
            pid = before[0] if before else INVENTED + index if taken else process.pid
            self.pids[process.id] = pid
            ends[pid] = process.end
            others += [] if before else [pid]
        self._name(alike)

    def _name(self, alike: dict[tuple[str, str], list[int]]) -> None:
        hosts = len({host for host, _ in alike})
        for (host, called), pids in alike.items():
            where = f" on {host}" if hosts > 1 else ""
            for pid in pids:
                self.names[pid] = f"{called}{where} (pid {pid})" if len(pids) > 1 else f"{called}{where}"

    def process_lines(self) -> list[str]:
        """The names and the order of the processes."""
        lines = []
        for index, pid in enumerate(dict.fromkeys(self.pids.values())):
            lines.append(_metadata("process_name", pid, pid, {"name": self.names[pid]}))
            lines.append(_metadata("process_sort_index", pid, pid, {"sort_index": index}))
        return lines

    def slice(self, process: str, tid: int, name: str, ts: int, dur: int, args: str) -> Iterator[str]:
        """A slice on the track of steps or of batches, after the name of that if it is new."""
        pid = self.pids[process]
        if (pid, tid) not in self.taken:
            self.taken.add((pid, tid))
            yield _metadata("thread_name", pid, tid, {"name": "steps" if tid == STEPS else "batches"})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid - INVENTED})
        at = f'"pid":{pid},"tid":{tid},"ts":{_us(ts)},"ph":"X","dur":{_us(dur)}'
        yield f'{{"name":{values.word(name)},"cat":"step",{at},"args":{args}}}'

    def counter(self, row: EventRow) -> str:
        """What the track of a counter is called: each category, name and key has its own, and a process its name."""
        name = label.event(row.cat, row.name)
        if row.key is None or (row.cat == probe.PROBE and row.name != probe.DEVICE_PEAK):  # the key is that of a batch
            return name
        host = next(process.host for process in self.processes if process.id == row.process)
        named = [self.names[self.pids[one.id]] for one in self.processes if (one.host, one.pid) == (host, row.key)]
        return f"{name}, {named[0]}" if row.cat == probe.SYSTEM and named else f"{name} [{row.key}]"

    def strand(self, row: EventRow) -> int:
        """On which strand of its thread an event lies."""
        thread = (row.process, row.lane)
        strands = self.strands.get(thread)
        if strands is None:
            self.strands.clear()  # events come thread by thread: the one before is complete
            strands = self.strands[thread] = Strands()
        return strands.place(row.seq, row.parent, row.start, row.end)

    def tid(self, row: EventRow, strand: int) -> tuple[int, str | None]:
        """The tid of a strand, and, the first time, the lines that name it."""
        pid = self.pids[row.process]
        key = (pid, row.lane, strand)
        tid = self.tids.get(key)
        if tid is not None:
            return tid, None
        free = strand == 0 and (pid, row.tid) not in self.taken
        tid = row.tid if free else INVENTED + len(self.taken)
        self.tids[key] = tid
        self.taken.add((pid, tid))
        name = row.thread if strand == 0 else f"{row.thread} (task {strand + 1})"
        named = _metadata("thread_name", pid, tid, {"name": name})
        ordered = _metadata("thread_sort_index", pid, tid, {"sort_index": len(self.taken)})
        return tid, f"{named},\n{ordered},\n"


def _line(row: EventRow, tracks: _Tracks, origin: int) -> str:
    """One event, after the names of its track if that is new."""
    counter = row.kind == "counter" and row.value is not None and math.isfinite(row.value)
    strand = 0 if counter else tracks.strand(row)
    tid, naming = tracks.tid(row, strand)
    if strand and (row.cat, row.name) == (probe.PROBE, probe.ITEM):
        tracks.aside[row.process, row.seq] = tid
    name = tracks.counter(row) if counter else row.name
    at = (
        f'{naming or ""}{{"name":{values.word(name)},"cat":{values.word(row.cat)},'
        f'"pid":{tracks.pids[row.process]},"tid":{tid},"ts":{_us(row.start - origin)}'
    )
    if counter:  # every argument of a counter is a series of its own, so it gets none but its value
        return f'{at},"ph":"C","args":{{"value":{row.value!r}}}}}'
    if row.kind == "span":
        return f'{at},"ph":"X","dur":{_us(row.end - row.start)},"args":{_arguments(row)}}}'
    return f'{at},"ph":"i","s":"t","args":{_arguments(row)}}}'


def _steps(run: Run, tracks: _Tracks, origin: int) -> Iterator[str]:
    """On tracks of their own: a slice for each step, with one of no duration at its end, and one for each batch as it is delivered."""
    query = "SELECT process, step, epoch, start_ns, dur_ns, loss FROM steps ORDER BY process, start_ns"
    for batch in run.batches(query):
        for process, step, epoch, start, dur, loss in batch:
            about = values.text({"step": step, "epoch": epoch, "loss": values.plain(loss)})
            yield from tracks.slice(process, STEPS, f"step {step}", start - origin, dur, about)
            yield from tracks.slice(process, STEPS, f"step {step} ends", start - origin + max(dur - 1, 0), 0, about)
    for batch in run.batches(f"SELECT process, batch, ready, step FROM ({_BATCHES}) ORDER BY process, ready"):
        for process, number, at, step in batch:
            yield from tracks.slice(process, BATCHES, f"batch {number}", at - origin, 0, values.text({"step": step}))


def _arrows(run: Run, tracks: _Tracks, origin: int) -> Iterator[str]:
    """Flow events in pairs: an item leads to its batch, and that to the end of the step that used it.

    Perfetto draws an arrow from the slice that begins first: so none leads to a wait or a step, which begin before.
    """
    number = 0
    for query in (_ITEM_TO_BATCH, _BATCH_TO_STEP):
        for batch in run.batches(query):
            for process, seq, lane, at, other, into, then in batch:
                pid, target = tracks.pids[process], tracks.pids[other]
                tid = (
                    BATCHES if lane == BATCHES else tracks.aside.get((process, seq)) or tracks.tids.get((pid, lane, 0))
                )
                if tid is None:
                    continue
                number += 1
                for kind, where, thread, when in (("s", pid, tid, at), ("f", target, into, then)):
                    yield (
                        f'{{"name":"batch","cat":"flow","ph":"{kind}","bp":"e","id":{number},"pid":{where},"tid":{thread},'
                        f'"ts":{_us(when - origin)}}}'
                    )


_BATCHES = f"""
    SELECT b.*, w.key, b.start_ns + b.wait_ns AS ready FROM batches b JOIN events w ON w.process = b.process AND w.start_ns = b.start_ns
    WHERE w.kind = 'span' AND w.cat = '{probe.PROBE}' AND w.name IN ('{probe.INPUT_WAIT}', '{probe.PREFETCH}') AND b.wait_ns IS NOT NULL
"""
_ITEM_TO_BATCH = f"""
    SELECT i.process, i.seq, coalesce(i.lane, 0), i.start_ns, b.process, {BATCHES}, b.ready
    FROM events i JOIN events f ON f.process = i.process AND f.seq = i.parent AND f.cat = '{probe.PROBE}' AND f.name = '{probe.FETCH}'
    JOIN process_numbers n ON n.process = i.process JOIN process_numbers o ON o.number = n.owner
    JOIN ({_BATCHES}) b ON b.process = o.process AND b.key = f.key
    WHERE i.cat = '{probe.PROBE}' AND i.name = '{probe.ITEM}' AND b.ready >= i.start_ns
    ORDER BY ALL
"""
_BATCH_TO_STEP = f"""
    SELECT b.process, 0, {BATCHES}, b.ready, s.process, {STEPS}, s.start_ns + greatest(s.dur_ns - 1, 0)
    FROM ({_BATCHES}) b JOIN steps s ON s.process = b.process AND s.step = b.step
    WHERE b.purpose <> 'evaluate' AND b.ready < s.start_ns + s.dur_ns
    ORDER BY ALL
"""


def _arguments(row: EventRow) -> str:
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
