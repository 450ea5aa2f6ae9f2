"""The time to the first step by part: imports, the start of loader workers, the first batch, first calls, the step itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import BESIDE, quoted
from sonde.analysis.training.named import named_time
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run

COMPUTING = ("forward", "backward", "optimizer", "h2d", "communication")
FIRST_STEPS = 1000  # with which the first one is compared
LAZY = 2.0  # times the median: what the first call of a phase takes more is compiling, or other lazy work
MOST_NAMED = 3  # spans of the program
OLDEST_NS = 366 * 86_400_000_000_000  # more is no age, but a clock that does not count from the start of the host
STARTING, BATCH, LAZY_CALLS, STEP, UNTRACKED = "worker start", "first batch", "first calls", "first step", "untracked"


@dataclass(frozen=True)
class StartPart:
    """A part of the time to the first step."""

    name: str
    ns: float


@dataclass(frozen=True)
class FirstStep:
    """When the first step ended, of the process that was the last with it. `since`: the start of the process, or of the recording."""

    process: str
    rank: int | None
    ns: int
    since: str  # process, recording
    parts: list[StartPart]  # in the order of time; together they are all of it


def first_step(run: Run) -> FirstStep | None:
    """That of a run; None: there is no step."""
    found = run.sql(
        """
        SELECT process, any_value(rank), min(start_ns), arg_min(dur_ns, start_ns) FROM steps WHERE dur_ns IS NOT NULL
        GROUP BY process ORDER BY min(start_ns) + arg_min(dur_ns, start_ns) DESC, process LIMIT 1
        """
    ).fetchall()
    if not found or run.meta.get("imported"):
        return None
    process, rank, start, lasted = found[0]
    phases = (*COMPUTING, "input_wait", "evaluation", "checkpoint")
    columns = ", ".join(f"coalesce(arg_min({one}_ns, start_ns), 0)" for one in phases)
    usual = ", ".join(f"median({one}_ns) FILTER (NOT warmup)" for one in COMPUTING)
    ((firsts, medians),) = run.sql(
        f"SELECT [{columns}], [{usual}] FROM (SELECT * EXCLUDE (host, process) FROM steps "
        f"WHERE process = {quoted(process)} AND dur_ns IS NOT NULL ORDER BY start_ns LIMIT {FIRST_STEPS})"
    ).fetchall()
    times, ended = dict(zip(phases, firsts, strict=True)), start + lasted
    began, imports = _startup(run, process)
    since = "recording" if began is None else "process"
    began = began if began is not None else min(start, _recorded_since(run, process, start))
    parts = [StartPart(f"import {name}", ns) for name, ns in imports.items()]
    named = _named(run, process, ended)
    starting = min(_iterations(run, process, ended), times["input_wait"])
    parts += [StartPart(STARTING, starting), StartPart(BATCH, times["input_wait"] - starting)]
    parts += [StartPart(one, times[one]) for one in ("evaluation", "checkpoint")]
    lazy = sum(_excess(times[one], usual) for one, usual in zip(COMPUTING, medians, strict=True))
    parts += [StartPart(LAZY_CALLS, lazy), StartPart(STEP, sum(times[one] for one in COMPUTING) - lazy)]
    whole = ended - began
    if sum(one.ns for one in parts + named) <= whole:  # else they lie around something of the above
        parts = parts[: len(imports)] + named + parts[len(imports) :]
    rest = whole - sum(one.ns for one in parts)
    return FirstStep(
        process, rank, whole, since, [*(one for one in parts if one.ns > 0), StartPart(UNTRACKED, max(0.0, rest))]
    )


def _excess(first: float, usual: float | None) -> float:
    return first - usual if usual is not None and first >= LAZY * usual else 0.0


def _startup(run: Run, process: str) -> tuple[int | None, dict[str, int]]:
    """When the process began, if that is known, and what its imports took."""
    rows = run.database.beside(
        f"SELECT start_ns, args FROM {BESIDE} WHERE kind = 'mark' AND cat = '{probe.SETUP}' AND name = '{probe.STARTUP}' "
        f"AND process = {quoted(process)} ORDER BY start_ns LIMIT 1"
    )
    if not rows or not rows[0][1]:
        return None, {}
    moment, args = rows[0][0], json.loads(rows[0][1])
    age, imports = args.get("age_ns"), args.get("imports")
    if not isinstance(age, int) or not 0 <= age < OLDEST_NS:  # then nobody knows when these imports were
        return None, {}
    known = imports if isinstance(imports, dict) else {}
    return moment - age, {str(name): ns for name, ns in known.items() if isinstance(ns, int)}


def _recorded_since(run: Run, process: str, otherwise: int) -> int:
    rows = run.sql(f"SELECT start_ns FROM processes WHERE process = {quoted(process)}").fetchall()
    return next((int(row[0]) for row in rows if row[0] is not None), otherwise)


def _iterations(run: Run, process: str, ended: int) -> float:
    """How long loaders took to begin, with their workers."""
    ((spent,),) = run.database.beside(
        f"SELECT coalesce(sum(dur_ns), 0) FROM {BESIDE} WHERE kind = 'span' AND cat = '{probe.PROBE}' AND name = '{probe.ITER}' "
        f"AND process = {quoted(process)} AND start_ns < {ended} AND NOT open"
    )
    return float(spent)


def _named(run: Run, process: str, ended: int) -> list[StartPart]:
    """What the program itself has named before the end of the first step."""
    names: Any = run.database.source.name_counts[process]
    found = named_time(run.database.connection, BESIDE, [process], names, ended).get(process, [])
    return [StartPart(name, ns) for _, name, ns in found[:MOST_NAMED]]
