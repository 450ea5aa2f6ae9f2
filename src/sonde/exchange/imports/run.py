"""Imports trace files as one run: the files one after the other, then what each process is."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sonde.errors import FolderRefused, RunUnreadable
from sonde.exchange.imports.chrome import FileImport
from sonde.exchange.imports.process import Process
from sonde.exchange.imports.scan import Scan
from sonde.exchange.output import Progress, ignore
from sonde.store.folder import MAX_HOST, RUN_FILE, create_run, opened, slug, write_json
from sonde.store.process import read_object
from sonde.version import __version__

PARTS = 8  # of the time, the last one is for what comes after reading
HOST = "imported"  # of a trace that does not say where it was recorded
_RANK = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Imported(NamedTuple):
    """What became of the files. `left_out` counts events by kind; `problems` are sentences."""

    path: Path
    processes: int
    events: int
    steps: int
    left_out: Counter[str]
    problems: list[str]


def import_traces(
    files: Sequence[Path], runs: Path, output: Path | None = None, progress: Progress = ignore
) -> Imported:
    """Write the files as a run in `runs`, or at `output`. A failed import leaves nothing.

    Raises RunUnreadable if a file is no trace, and FolderRefused if `output` exists.
    """
    if output is not None and os.path.lexists(output):
        raise FolderRefused(f"{output} exists. Choose another path with -o.")
    total = sum(path.stat().st_size for path in files) * PARTS // (PARTS - 1)
    stem = files[0].name.removesuffix(".gz").removesuffix(".json").removesuffix(".pfw")
    path = Path(
        create_run(
            str(output.absolute().parent if output else runs),
            stem,
            {},
            __version__,
            ["sonde", "import", *map(str, files)],
        )
    )
    # Of a killed import, nothing has the name of a run.
    part = path.rename(path.with_name(f".{path.name}.part"))
    try:
        found = _import(files, part, lambda done: progress(done, total))
        return found._replace(path=part.rename(output or path))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _import(files: Sequence[Path], run: Path, progress: Callable[[int], None]) -> Imported:
    imported = Imported(run, 0, 0, 0, Counter(), [])
    processes: list[tuple[Process, int]] = []
    formats: set[str] = set()
    before = 0
    for number, path in enumerate(files):
        scan = Scan(path, functools.partial(_advance, progress, before))
        one = FileImport(run, f"file-{number}")
        imported = imported._replace(events=imported.events + one.take(scan))
        before += path.stat().st_size
        formats.add(one.format)
        if not any(process.writer.count for process in one.processes.values()):
            raise RunUnreadable(f"{path} {_without_events(one, scan)}")
        processes += [(process, number) for process in _present(one, path, alone=len(files) == 1)]
        imported.left_out.update(one.counts.left_out)
        imported.problems.extend(scan.problems)
        for kind, count in one.counts.damaged.items():
            imported.problems.append(f"{path}: {count:,} {kind} without a valid time, name or value were skipped.")
    share = before // (PARTS - 1) / len(processes)
    began = _finish(run, processes, files[0].stat().st_mtime_ns, lambda done: progress(before + int(share * done)))
    meta = read_object(run / RUN_FILE, [])
    about = {
        "files": [path.name for path in files],
        "formats": sorted(formats),
        "left_out": dict(imported.left_out),
        "problems": imported.problems,
    }
    with opened(str(run)) as folder:
        start = {"mono_ns": began, "wall_ns": began}
        write_json(folder, RUN_FILE, meta | {"start": start, "git": None, "imported": about})
    return imported._replace(
        processes=len(processes),
        steps=sum(len(process.steps) or len(process.updates) for process, _ in processes),
    )


def _without_events(one: FileImport, scan: Scan) -> str:
    """Why nothing of a file was imported."""
    if scan.problems:
        return "is truncated, damaged or nested too deeply before the end of its first event."
    if one.counts.damaged:
        return "has no events with a valid time, name and value."
    return "has no events. Give a trace file with events."


def _present(one: FileImport, path: Path, alone: bool) -> list[Process]:
    """The processes of a file that have events. Of several files, the name of one may say its rank."""
    there = [process for process in one.processes.values() if process.writer.count]
    for process in one.processes.values():
        if not process.writer.count:
            process.writer.folder.rmdir()
    found = _RANK.search(path.name)
    if found and not alone and len(there) == 1 and there[0].rank is None:
        there[0].rank = int(found[1])
    return there


def _advance(progress: Callable[[int], None], before: int, read: int) -> None:
    progress(before + read)


def _finish(run: Path, processes: Sequence[tuple[Process, int]], recorded: int, progress: Callable[[int], None]) -> int:
    """Write what each process is, and give its folder its name; the start of the first one, in ns from 1970."""
    ranks = {process.rank for process, _ in processes if process.rank is not None}
    # Nobody says when these were: the first of them began at the time of the first file.
    undated = [process.writer.first or 0 for process, _ in processes if not process.dated]
    moved = recorded - min(undated, default=0)
    starts = []
    for place, (process, file) in enumerate(processes):
        first, last = process.writer.first or 0, process.writer.last
        base = process.base if process.dated else moved
        host, pid = slug(process.host or HOST, MAX_HOST), process.pid if process.pid is not None else place + 1
        n = next(n for n in range(len(processes)) if not (run / f"{host}-{pid}-{n}").exists())
        trains = bool(process.steps or process.updates or process.rank is not None)
        about = {
            "schema": 1,
            "host": host,
            "pid": pid,
            "n": n,
            "parent_pid": None,
            "boot_id": f"import-{file}",
            "rank": process.rank,
            "local_rank": None,
            "world_size": process.world_size if process.world_size is not None else len(ranks) or None,
            "role": "worker" if process.worker is not None else "trainer" if trains else "main",
            "worker": process.worker,
            "core": "import",
            "writes": "block",
            "name": process.name,
            "start": {"mono_ns": first, "wall_ns": first + base},
            "end": {"mono_ns": last, "wall_ns": last + base, "reason": "finish", "exception": None},
        }
        process.writer.finish(about, process.steps)
        process.writer.folder.rename(run / f"{host}-{pid}-{n}")
        starts.append(first + base)
        progress(place + 1)
    return min(starts)
