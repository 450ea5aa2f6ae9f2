"""What `sonde runs` shows of a folder of runs: read from small JSON files alone, so that thousands list at once."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sonde.analysis.parts.liveness import last_seen
from sonde.analysis.run import RECORDING, Run, open_run
from sonde.errors import RunNotFound, SondeError
from sonde.guard import guard
from sonde.store import alive
from sonde.store.folder import RUN_FILE
from sonde.store.process import Info, is_ours, read_object
from sonde.views.outcome import Outcome, make_outcome, read_outcome

BROKEN = "broken"


@dataclass(frozen=True)
class RunEntry:
    """One run folder; `problem` says what is wrong with it, if something is."""

    id: str
    name: str
    path: str
    state: str  # recording, ended, died, unknown (ran on another host), broken
    ended: (
        str  # running, finished, crashed, interrupted, killed, unknown, broken; with the exception, signal or exit code
    )
    sealed: bool
    started_ns: int | None
    dur_ns: int | None
    processes: int
    running: list[int]  # the pids that still record
    size: int
    problem: str | None
    outcome: Outcome | None = None  # None is not known


@dataclass(frozen=True)
class Runs:
    """The runs of one folder, the newest first; `left_out` older ones are not among them."""

    dir: str
    runs: list[RunEntry]
    left_out: int = 0


def list_runs(folder: Path, limit: int = 0) -> Runs:
    """The newest `limit` run folders in `folder` (0: all); none if there is no such folder."""
    entries: list[RunEntry] = []
    known = sorted(((_began(path), path.name, path) for path in candidates(folder)), reverse=True)
    left_out = 0
    for began, _, path in known:
        # One that does not say when it began may be newer than all: its processes are asked.
        if limit and len(entries) >= limit and began:
            left_out += 1
            continue
        with suppress(RunNotFound):
            entries.append(entry(path))
    entries.sort(key=lambda one: (one.started_ns or 0, one.id), reverse=True)
    shown = entries[:limit] if limit else entries
    return Runs(str(folder), shown, left_out + len(entries) - len(shown))


def _began(path: Path) -> int:
    """When a run began, by run.json; 0: it does not say."""
    meta = read_object(path / RUN_FILE, [])
    start = meta.get("start")
    wall = start.get("wall_ns") if is_ours(meta) and isinstance(start, dict) else None
    return wall if isinstance(wall, int) else 0


def with_outcomes(found: Runs, seconds: float) -> Runs:
    """The same with what came of each run, as far as that was kept or can be found out in this time."""
    until = time.process_time() + seconds
    return replace(found, runs=[replace(one, outcome=_outcome(one, until)) for one in found.runs])


def _outcome(one: RunEntry, until: float) -> Outcome | None:
    path = Path(one.path)
    kept = read_outcome(path)
    if kept is not None or one.state == BROKEN or not one.processes or time.process_time() > until:
        return kept
    with guard("reading a run for its verdict"):
        return make_outcome(path)
    return None


def candidates(folder: Path) -> list[Path]:
    """The folders in `folder` that can be runs: no links, nothing hidden."""
    try:
        with os.scandir(folder) as found:
            return [
                Path(one.path) for one in found if not one.name.startswith(".") and one.is_dir(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def entry(path: Path) -> RunEntry:
    """What the small files of one run folder say, and what is wrong with them. Raises RunNotFound if it is no run."""
    try:
        run = open_run(path)
        folders, infos = run.folders, run.infos
    except RunNotFound:
        raise
    except (SondeError, OSError) as error:
        return _broken(path, str(error))
    notes: list[str] = []
    about = read_object(path / RUN_FILE, notes)
    state = run.state
    return RunEntry(
        id=path.name,
        name=run.name,
        path=str(path),
        state=state if about or infos else BROKEN,
        ended=str(run.ending) if about or infos else BROKEN,
        sealed=run.sealed,
        started_ns=run.started,
        dur_ns=_duration(run, state, list(zip(folders, infos, strict=True))) if infos else None,
        processes=len(infos),
        running=[pid for pid in map(alive.running, infos) if pid is not None],
        size=run.size,
        problem="; ".join(notes) or None,
    )


def _broken(path: Path, problem: str) -> RunEntry:
    return RunEntry(path.name, path.name, str(path), BROKEN, BROKEN, False, None, None, 0, [], 0, problem)


def _duration(run: Run, state: str, processes: list[tuple[Path, Info]]) -> int | None:
    if run.started is None:
        return None
    if state == RECORDING:
        return max(time.time_ns() - run.started, 0)
    ends = [info.end.wall_ns for _, info in processes if info.end]
    silent = [(folder, info) for folder, info in processes if not info.end]
    # Those that no other process started have said when they ended: the others ended before them.
    if silent and state != alive.ENDED:
        ends += [moment for moment in (last_seen(run.path, silent),) if moment is not None]
    return max(max(ends) - run.started, 0) if ends else None
