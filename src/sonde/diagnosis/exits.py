"""How the processes of a run ended, what failed in them, and which of them make no progress."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sonde.analysis.drops import Drops
from sonde.analysis.exits import FINISHED, was_ended
from sonde.analysis.postmortem.stacks import threads_in
from sonde.analysis.questions.spans import OpenSpan, open_spans
from sonde.analysis.run import RECORDING
from sonde.diagnosis.figures import Asker, Figure, literal
from sonde.store import probe
from sonde.store.alive import DIED, ENDED, RUNNING, TERMINATED

if TYPE_CHECKING:
    from pathlib import Path

    from sonde.analysis.run import Run

MOST_FAILED = 20  # spans that an exception went through
MOST_READ = 1 << 18  # bytes at the end of a file with stacks
STACKS = re.compile(r"stacks-.+-(\d+)(?:-\d+)?\.txt")


@dataclass(frozen=True)
class End:
    """A process, and how it ended. `when_ns`: when that was noticed, or the last moment known of it."""

    process: str
    host: str
    pid: int | None
    rank: int | None
    role: str | None
    worker: int | None
    state: str
    reason: str | None
    exception: str | None
    exit_code: int | None
    signal: int | None
    when_ns: int | None
    query: str  # what gives signal and exit code
    message: str | None = None  # of the exception
    place: str | None = None  # the line of the program that raised it

    @property
    def who(self) -> str:
        """In words: `rank 1`, `worker 2 of rank 0`, `process 4711`."""
        of = "" if self.rank is None else f" of rank {self.rank}"
        if self.worker is not None:
            return f"loader worker {self.worker}{of} (process {self.pid})"
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank} (process {self.pid})"


@dataclass(frozen=True)
class FailedSpan:
    """A span that an exception went through. `key`: of an item its index, of a fetch or a wait its batch."""

    process: str
    rank: int | None
    worker: int | None
    name: str
    key: int | None
    step: int | None
    end_ns: int
    text: str | None  # of an item whose key is no number
    seq: int
    parent: int | None


@dataclass(frozen=True)
class Stuck:
    """A process that trained, for how long nothing was heard of it, what it is in, and its stack if it was written."""

    process: str
    rank: int | None
    pid: int | None
    step: int | None
    last_ns: int
    idle_ns: int
    figures: dict[str, Figure]  # its last step and its last sign of life
    open: list[OpenSpan]
    stacks: str | None  # the file in the run folder
    frames: list[str]  # of the main thread, the innermost first


@dataclass(frozen=True)
class Ends:
    """All of it."""

    state: str
    processes: list[End] = field(default_factory=list)
    failed: list[FailedSpan] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)  # of a run that is going on or died, those that trained
    lost: Drops = field(default_factory=lambda: Drops(0, {}, {}))


def gather_ends(run: Run, ask: Asker, trained: frozenset[str]) -> Ends:
    """Look at the ends of processes. `trained`: the processes that have steps."""
    said = {(info.host, info.pid): (info.message, info.place) for info in run.infos if info.exception}
    processes = [_with_cause(end, said) for end in _processes(ask, finished=run.ending.word == FINISHED)]
    bad = any(one.exception or one.exit_code or one.signal or one.state == DIED for one in processes)
    failed = [FailedSpan(*row) for row in ask.rows(_FAILED)] if bad or run.state == RECORDING else []
    waits = run.state == RECORDING or any(one.state == DIED or one.signal for one in processes)
    stuck = _stuck(run, ask, processes, trained) if waits else []
    return Ends(run.state, processes, failed, stuck, run.drops)


def _with_cause(end: End, said: dict[tuple[str, int | None], tuple[str | None, str | None]]) -> End:
    message, place = said.get((end.host, end.pid), (None, None)) if end.exception else (None, None)
    return replace(end, message=message, place=place)


# Of a child that recorded nothing: its parent ended it, and ended well itself. Of others the tables tell it.
_WELL = f"""
    m.args->>'$.{probe.EXIT_BY}' = '{probe.PARENT}' AND (t.reason = '{TERMINATED}'
        OR t.state <> '{DIED}' AND t.signal IS NULL AND t.exception IS NULL AND coalesce(t.exit_code, 0) = 0)
"""
_MARKS = f"""
    SELECT host, key AS pid, max(start_ns) AS latest, arg_max(args, start_ns) AS args, arg_max(process, start_ns) AS teller
    FROM events WHERE kind = 'mark' AND cat = '{probe.PROCESS}' AND name = '{probe.EXIT}' AND key IS NOT NULL GROUP BY ALL
"""
_ENDS = f"""
    SELECT p.process, p.host, p.pid, p.rank, p.role, p.worker, p.state, p.reason, p.exception, p.exit_code, p.signal,
           coalesce(m.latest, p.end_ns, p.last_ns) AS noticed
    FROM processes p LEFT JOIN ({_MARKS}) m USING (host, pid)
    UNION ALL
    SELECT NULL, m.host, m.pid, NULL, NULL, NULL, '{DIED}', CASE WHEN {_WELL} THEN '{TERMINATED}' END, NULL,
           try_cast(args->>'$.code' AS BIGINT), try_cast(args->>'$.signal' AS BIGINT), latest
    FROM ({_MARKS}) m ANTI JOIN processes p USING (host, pid) LEFT JOIN processes t ON t.process = m.teller
    ORDER BY noticed NULLS LAST, 1
"""
_FAILED = f"""
    SELECT e.process, e.rank, p.worker, e.name, e.key, e.step, e.start_ns + e.dur_ns,
           CASE WHEN e.name = '{probe.ITEM}' THEN e.args->>'$.key' END, e.seq, e.parent
    FROM events e JOIN processes p USING (process)
    WHERE e.kind = 'span' AND e.error AND e.dur_ns IS NOT NULL AND e.cat = '{probe.PROBE}'
    ORDER BY e.start_ns DESC, e.seq DESC LIMIT {MOST_FAILED}
"""


def _processes(ask: Asker, *, finished: bool) -> list[End]:
    found = []
    for row in ask.rows(_ENDS):
        process, host, pid, code, signal = row[0], row[1], row[2], row[9], row[10]
        if process is not None:
            query = f"SELECT coalesce(signal, exit_code) FROM processes WHERE process = {literal(process)}"
        elif finished and was_ended(row[6], code, signal):
            continue
        elif code or signal:  # one that recorded nothing itself: only a bad end is of interest
            query = (
                "SELECT coalesce(try_cast(args->>'$.signal' AS BIGINT), try_cast(args->>'$.code' AS BIGINT)) FROM events "
                f"WHERE cat = '{probe.PROCESS}' AND name = '{probe.EXIT}' AND host = {literal(host)} AND key = {pid} "
                "ORDER BY start_ns DESC LIMIT 1"
            )
        else:
            continue
        values = (process or f"{host}-{pid}", *row[1:], query)
        found.append(End(*values))
    return found


def _stuck(run: Run, ask: Asker, processes: list[End], trained: frozenset[str]) -> list[Stuck]:
    offsets = {row["process"]: row["offset_ns"] for row in run.rows}
    spans: dict[str, list[OpenSpan]] = {}
    for span in open_spans(run):
        if span.cat == probe.PROBE:
            spans.setdefault(span.process, []).append(span)
    seen = dict(ask.rows("SELECT host, max(last_ns) FROM processes GROUP BY 1"))
    last = dict(ask.rows("SELECT process, last_ns FROM processes"))
    steps = dict(ask.rows("SELECT process, max(step) FROM steps GROUP BY 1")) if trained else {}
    found = []
    for one in processes:
        if one.worker is not None or not (one.process in trained or one.process in spans):
            continue
        known = one.exit_code is not None or one.signal is not None
        now = one.when_ns if known else seen.get(one.host)
        if one.state == RUNNING:
            now = time.monotonic_ns() + (offsets[one.process] or 0)
        if one.state == ENDED or now is None or last[one.process] is None:
            continue
        file, frames = _stack(run.path, one.pid)
        idle = max(0, now - last[one.process])
        step = steps.get(one.process)
        figures = {
            "last sign of life ns": Figure(last[one.process], f"SELECT last_ns FROM processes WHERE {_is(one.process)}")
        }
        if step is not None:
            figures["last step"] = Figure(step, f"SELECT max(step) FROM steps WHERE {_is(one.process)}")
        who = (one.process, one.rank, one.pid, step, last[one.process], idle, figures)
        found.append(Stuck(*who, spans.get(one.process, []), file, frames))
    return found


def _is(process: str) -> str:
    return f"process = {literal(process)}"


def _stack(folder: Path, pid: int | None) -> tuple[str | None, list[str]]:
    """The file with the stacks of a process, and the frames of its main thread as they were written last."""
    for path in sorted(folder.glob(f"stacks-*-{pid}*.txt"), reverse=True):
        named = STACKS.fullmatch(path.name)
        if named is None or named[1] != str(pid) or not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_READ))
            text = file.read(MOST_READ).decode("utf-8", "replace")
        if text:
            return path.name, frames_of(text)
    return None, []


def frames_of(text: str) -> list[str]:
    """The frames of the main thread in the last of several dumps: faulthandler writes it as the last thread of each."""
    threads = threads_in(text)
    return threads[-1].frames if threads else []
