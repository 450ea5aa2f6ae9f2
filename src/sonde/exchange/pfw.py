"""Export to DFTracer's lines (`.pfw`), in the dialect that its guide shows: one JSON object per line.

`id` is the number of the event in its process, `p_idx` that of its parent (0: none), `level` its depth from 1.
What the probes recorded has the names of the vocabulary, so that DFTracer's readers know it: `compute.forward`, `data.item`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, BinaryIO

from sonde.analysis.run import Run
from sonde.exchange import jsonvalues, rows
from sonde.exchange.output import Progress, ignore, output_file
from sonde.exchange.rows import EventRow, ExportedProcess
from sonde.store import probe

TRACER = "dftracer"  # the category of lines about the trace itself

# What the probes record, as the vocabulary calls it. Waiting for a batch is what `ai.dataloader.fetch.iter(loader)` writes.
_VOCABULARY = {
    probe.INPUT_WAIT: ("dataloader", "fetch.iter"),
    probe.ITEM: ("data", "item"),
    probe.H2D: ("device", "transfer"),
    probe.FORWARD: ("compute", "forward"),
    probe.BACKWARD: ("compute", "backward"),
    probe.OPTIMIZER: ("compute", "step"),
    probe.CHECKPOINT: ("checkpoint", "capture"),
    probe.EVALUATION: ("pipeline", "evaluate"),
}
Names = Mapping[tuple[str, str], tuple[str, str]]


def export(run: Run, path: Path | BinaryIO, gzip: bool = False, progress: Progress | None = None) -> int:
    """Write the run to `path` (or an open binary file); returns the number of lines that are events."""
    with output_file(path, gzip) as file:
        return _write(run, file, progress or ignore)


def _write(run: Run, file: IO[str], progress: Progress) -> int:
    total, done = rows.counted(run), 0
    processes = {process.id: process for process in rows.processes(run)}
    hashes = {process.host: _hash(process.host) for process in processes.values()}
    names = {
        id: _names({(one.cat, one.name) for one in named}) for id, named in run.database.source.name_counts.items()
    }
    _put(file, _about(processes.values(), hashes))
    named: set[tuple[str, int]] = set()
    for batch in rows.batches(run):
        for row in batch:
            process = processes[row.process]
            if (row.process, row.lane) not in named:
                named.add((row.process, row.lane))
                _put(file, [_metadata("thread_name", process.pid, row.tid, hashes[process.host], row.thread, row.tid)])
            cat, name = names[row.process].get((row.cat, row.name), (row.cat, row.name))
            _put(file, [_event(row._replace(cat=cat, name=name), process, hashes[process.host])])
        done += len(batch)
        progress(done, total)
    return done


def _names(there: set[tuple[str, str]]) -> Names:
    """What the events of a process are called here. What the program marks itself is not written a second time by the probes."""
    marked = {(cat, name.partition(".")[0]) for cat, name in there if cat != probe.PROBE}
    found = {}
    for cat, name in there:
        known = _VOCABULARY.get(name)
        if name.startswith(probe.COMMUNICATION):
            known = ("comm", name.removeprefix(probe.COMMUNICATION))
        if cat == probe.PROBE and known is not None and (known[0], known[1].partition(".")[0]) not in marked:
            found[cat, name] = known
    return found


def _put(file: IO[str], lines: Iterable[dict[str, object]]) -> None:
    file.writelines(jsonvalues.text(line) + "\n" for line in lines)


def _about(processes: Iterable[ExportedProcess], hashes: dict[str, str]) -> Iterable[dict[str, object]]:
    """The lines that come first: which hash stands for which host, and what each process is."""
    written = set()
    for process in processes:
        code = hashes[process.host]
        if process.host not in written:
            written.add(process.host)
            yield _metadata("HH", process.pid, process.pid, code, process.host, code)
        yield _metadata("PR", process.pid, process.pid, code, process.label, process.pid)


def _event(row: EventRow, process: ExportedProcess, code: str) -> dict[str, object]:
    if row.meta:
        # A fact that was given with `log_metadata` has a value of its own; the value of a mark is its time.
        fact = jsonvalues.arguments(row.args).get("value") if row.cat == TRACER else None
        return _metadata(
            "CM", process.pid, row.tid, code, row.name, row.start // 1000 if fact is None else fact, row.seq
        )
    line: dict[str, object] = {
        "id": row.seq,
        "name": row.name,
        "cat": row.cat,
        "pid": process.pid,
        "tid": row.tid,
        "ts": row.start // 1000,
    }
    if row.kind == "counter":
        return line | {"ph": "C", "args": {"hhash": code, "value": jsonvalues.plain(row.value)} | _arguments(row)}
    # Both ends are rounded the same way, so that a child never reaches beyond its parent.
    line["dur"] = row.end // 1000 - row.start // 1000
    place = {"hhash": code, "p_idx": row.parent or 0, "level": row.depth + 1}
    return line | {"ph": "X", "args": place | _arguments(row)}


def _arguments(row: EventRow) -> dict[str, object]:
    found: dict[str, object] = {}
    if row.epoch is not None:
        found["epoch"] = row.epoch
    if row.step is not None:
        found["step"] = row.step
    if row.key is not None and row.name.endswith((".iter", ".block", ".yield")):
        found["count"] = str(row.key)
    elif row.key is not None:
        found["key"] = jsonvalues.plain(row.key)
    for flag in ("error", "open"):
        if getattr(row, flag):
            found[flag] = True
    if row.kind == "mark":
        found["mark"] = True  # the dialect knows only spans: a mark is one without duration
    return found | jsonvalues.arguments(row.args)


def _metadata(
    name: str, pid: int, tid: int, code: str, about: str, value: object, number: int = 0
) -> dict[str, object]:
    args = {"hhash": code, "name": about, "value": str(value)}
    return {"id": number, "name": name, "cat": TRACER, "pid": pid, "tid": tid, "ph": "M", "args": args}


def _hash(host: str) -> str:
    return hashlib.blake2b(host.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
