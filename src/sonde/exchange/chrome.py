"""Export to the Chrome trace format (JSON), which Perfetto and chrome://tracing open.

Times count from the first event: a viewer keeps them as float64, which holds nanoseconds of a run but not of an epoch.
A span that is still open reaches to the last time its process was seen, and has the argument `open`. The steps of each process
have a track of their own, and so have its batches; arrows lead from each item to its batch, and from there to the step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.run import Run
from sonde.exchange import flows, jsonvalues, rows
from sonde.exchange.output import Progress, ignore, output_file
from sonde.exchange.rows import EventRow
from sonde.exchange.tracks import BATCHES, INVENTED, STEPS, Tracks
from sonde.store import probe


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns how many events it holds."""
    with output_file(path, gzip) as file:
        return _write(run, file, progress or ignore)


def _write(run: Run, file: IO[str], progress: Progress) -> int:
    total, done = rows.counted(run), 0
    origin = rows.origin(run)
    about = {"run": run.id, "recorded by": "sonde", "start_ns": str(origin), "clocks": rows.clocks(run)}
    file.write(f'{{"displayTimeUnit":"ns","otherData":{jsonvalues.text(about)},"traceEvents":[\n')
    tracks = Tracks(rows.processes(run))
    file.write(",\n".join(_process_lines(tracks)))  # at least one, if there are events
    for batch in rows.batches(run):
        file.writelines(f",\n{_line(row, tracks, origin)}" for row in batch)
        done += len(batch)
        progress(done, total)
    for line in itertools.chain(_steps(run, tracks, origin), _arrows(run, tracks, origin)):
        file.write(f",\n{line}")
    file.write("\n]}\n")
    return done


def _process_lines(tracks: Tracks) -> Iterator[str]:
    """The names and the order of the processes."""
    for index, pid in enumerate(dict.fromkeys(tracks.pids.values())):
        yield _metadata("process_name", pid, pid, {"name": tracks.names[pid]})
        yield _metadata("process_sort_index", pid, pid, {"sort_index": index})


def _slice(tracks: Tracks, process: str, tid: int, name: str, ts: int, dur: int, args: str) -> Iterator[str]:
    """A slice on the track of steps or of batches, after the name of that if it is new."""
    pid = tracks.pids[process]
    if tracks.is_new(pid, tid):
        yield _metadata("thread_name", pid, tid, {"name": "steps" if tid == STEPS else "batches"})
        yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid - INVENTED})
    at = f'"pid":{pid},"tid":{tid},"ts":{_us(ts)},"ph":"X","dur":{_us(dur)}'
    yield f'{{"name":{jsonvalues.word(name)},"cat":"step",{at},"args":{args}}}'


def _line(row: EventRow, tracks: Tracks, origin: int) -> str:
    """One event, after the names of its track if that is new."""
    counter = row.kind == "counter" and row.value is not None and math.isfinite(row.value)
    strand = 0 if counter else tracks.strand(row)
    tid, called = tracks.tid(row, strand)
    naming = "" if called is None else _naming(tracks, tracks.pids[row.process], tid, called)
    if strand and (row.cat, row.name) == (probe.PROBE, probe.ITEM):
        tracks.aside[row.process, row.seq] = tid
    name = tracks.counter_name(row) if counter else row.name
    at = (
        f'{naming}{{"name":{jsonvalues.word(name)},"cat":{jsonvalues.word(row.cat)},'
        f'"pid":{tracks.pids[row.process]},"tid":{tid},"ts":{_us(row.start - origin)}'
    )
    if counter:  # every argument of a counter is a series of its own, so it gets none but its value
        return f'{at},"ph":"C","args":{{"value":{row.value!r}}}}}'
    if row.kind == "span":
        return f'{at},"ph":"X","dur":{_us(row.end - row.start)},"args":{_arguments(row)}}}'
    return f'{at},"ph":"i","s":"t","args":{_arguments(row)}}}'


def _naming(tracks: Tracks, pid: int, tid: int, name: str) -> str:
    """The lines that name a thread, and place it below the others."""
    named = _metadata("thread_name", pid, tid, {"name": name})
    ordered = _metadata("thread_sort_index", pid, tid, {"sort_index": len(tracks.taken)})
    return f"{named},\n{ordered},\n"


def _steps(run: Run, tracks: Tracks, origin: int) -> Iterator[str]:
    """On tracks of their own: a slice for each step, with one of no duration at its end, and one for each batch as it is delivered."""
    moved = rows.moving(run)
    query = "SELECT process, step, epoch, start_ns, dur_ns, loss FROM steps ORDER BY process, start_ns"
    for batch in run.batches(query):
        for process, step, epoch, begun, dur, loss in batch:
            about = jsonvalues.text({"step": step, "epoch": epoch, "loss": jsonvalues.plain(loss)})
            start = moved(process, begun) - origin
            yield from _slice(tracks, process, STEPS, f"step {step}", start, dur, about)
            yield from _slice(tracks, process, STEPS, f"step {step} ends", start + max(dur - 1, 0), 0, about)
    for batch in run.batches(f"SELECT process, batch, ready, step FROM ({flows.BATCH_READY}) ORDER BY process, ready"):
        for process, number, at, step in batch:
            yield from _slice(
                tracks,
                process,
                BATCHES,
                f"batch {number}",
                moved(process, at) - origin,
                0,
                jsonvalues.text({"step": step}),
            )


def _arrows(run: Run, tracks: Tracks, origin: int) -> Iterator[str]:
    """Flow events in pairs: an item leads to its batch, and that to the end of the step that used it.

    Perfetto draws an arrow from the slice that begins first: so none leads to a wait or a step, which begin before.
    """
    number, moved = 0, rows.moving(run)
    for query in (flows.ITEM_TO_BATCH, flows.BATCH_TO_STEP):
        for batch in run.batches(query):
            for process, seq, lane, at, other, into, then in batch:
                pid, target = tracks.pids[process], tracks.pids[other]
                tid = (
                    BATCHES if lane == BATCHES else tracks.aside.get((process, seq)) or tracks.tids.get((pid, lane, 0))
                )
                if tid is None:
                    continue
                number += 1
                for kind, where, thread, when in (
                    ("s", pid, tid, moved(process, at)),
                    ("f", target, into, moved(other, then)),
                ):
                    yield (
                        f'{{"name":"batch","cat":"flow","ph":"{kind}","bp":"e","id":{number},"pid":{where},"tid":{thread},'
                        f'"ts":{_us(when - origin)}}}'
                    )


def _arguments(row: EventRow) -> str:
    found = rows.arguments(row)
    return jsonvalues.text(found) if found else "{}"


def _metadata(name: str, pid: int, tid: int, args: dict[str, object]) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"args":{jsonvalues.text(args)}}}'


def _us(ns: int) -> str:
    whole, part = divmod(ns, 1000)
    return f"{whole}.{part:03}" if part else str(whole)
