"""Puts the steps that torch.profiler recorded beside Sonde on the timeline of the run, each as a process of its own.

`python -m sonde.exchange.imports.profiler RUN [quiet]`, which `sonde run --profile-step` starts at its end.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from sonde.analysis.records.schema import quoted
from sonde.analysis.run import Run, open_run
from sonde.errors import RunUnreadable, SondeError
from sonde.exchange.imports.chrome import FileImport
from sonde.exchange.imports.parents import StepRange
from sonde.exchange.imports.process import Process
from sonde.exchange.imports.scan import Scan
from sonde.store.folder import PROFILE_SYNC, PROFILES

ENDING = ".json.gz"
ROLE = "profiler"
INVENTED = 10_000_000  # added to a pid: larger than any of Linux


def join(path: Path) -> int:
    """Add every profile of the run that is not in it yet; how many events they have."""
    files = sorted((path / PROFILES).glob(f"*{ENDING}"))
    with open_run(path) as run:
        rows = {row["process"]: row for row in run.rows}
        return sum(_join(run, file, rows[name]) for file in files if (name := file.name.removesuffix(ENDING)) in rows)


class _Profile(FileImport):
    """A trace whose events keep their names: the phases of these steps are known. `ahead`: by how much our clock is ahead."""

    ahead: int | None = None

    def _known_as(self, cat: str, name: str) -> tuple[str, str]:
        return cat, name

    def _span(
        self, process: Process, thread: Hashable, cat: str, name: str, start: int, dur: int | None, args: dict[str, Any]
    ) -> None:
        moment = name.removeprefix(PROFILE_SYNC)
        if moment == name:
            super()._span(process, thread, cat, name, start, dur, args)
        elif moment.isdecimal():  # what came between reading our clock and its own can only make this smaller
            ahead = int(moment) - start
            self.ahead = ahead if self.ahead is None else max(self.ahead, ahead)

    def _end_steps(self, process: Process) -> None:
        process.steps.clear()


def _join(run: Run, file: Path, row: dict[str, Any]) -> int:
    pid = INVENTED + row["pid"]
    target = run.path / f"{row['host']}-{pid}-{row['process'].rpartition('-')[2]}"
    if target.exists():
        return 0
    scan = Scan(file, lambda _: None)
    found = _Profile(run.path, f".{file.name.removesuffix(ENDING)}-{os.getpid()}")
    try:
        count = found.take(scan)
        for process in found.processes.values():  # torch.profiler writes one
            _finish(run, process, _known(found.ahead, file), row, pid)
            if not _renamed(process.writer.folder, target):
                return 0
    finally:  # what did not become a process of the run
        for process in found.processes.values():
            shutil.rmtree(process.writer.folder, ignore_errors=True)
    return count


def _renamed(folder: Path, target: Path) -> bool:
    """Whether it has its name now; not if the launcher of another rank joined the same profile meanwhile."""
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True


def _known(ahead: int | None, file: Path) -> int:
    if ahead is None:
        raise RunUnreadable(f"{file} has no Sonde mark, so its events cannot be placed on the timeline.")
    return ahead


def _finish(run: Run, process: Process, ahead: int, row: dict[str, Any], pid: int) -> None:
    """Write what the process is. Its own clock is `ahead` behind that of the program."""
    base = ahead + row["offset_ns"]
    mine = f"SELECT start_ns, start_ns + dur_ns, step FROM steps WHERE process = {quoted(row['process'])}"
    steps = [StepRange(start - base, end - base, step) for start, end, step in run.sql(mine).fetchall()]
    first, last = process.writer.first or 0, process.writer.last
    about = {
        "schema": 1,
        "host": row["host"],
        "pid": pid,
        "n": int(row["process"].rpartition("-")[2]),
        "parent_pid": row["pid"],
        "boot_id": f"profile-{row['process']}",
        "rank": row["rank"],
        "local_rank": row["local_rank"],
        "world_size": row["world_size"],
        "role": ROLE,
        "worker": None,
        "core": "import",
        "writes": "block",
        "start": {"mono_ns": first, "wall_ns": first + base},
        "end": {"mono_ns": last, "wall_ns": last + base, "reason": "finish", "exception": None},
    }
    process.writer.finish(about, steps)


def main(run: str, *quiet: str) -> None:
    """Join the profiles of a run, and say so unless it is to be quiet."""
    try:
        count = join(Path(run))
    except (SondeError, OSError) as error:
        print(f"sonde: cannot add the profile to the timeline: {error}", file=sys.stderr)
        sys.exit(1)
    if count and not quiet:
        print(f"sonde: torch.profiler recorded {count:,} events in {Path(run, PROFILES)}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
