"""The steps of a run as a list, and one step in full: its phases, what its threads and loader workers did, and its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.timeline.downsample import MOST_EXACT
from sonde.analysis.questions.timeline.lanes import lane_ids
from sonde.analysis.records.owners import owners
from sonde.analysis.records.schema import STEPS, quoted
from sonde.errors import UnknownName, nearest
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.analysis.run import Run

MOST_SLICES = 4000  # of one step
SHOWN_RANKS = 12  # whose lanes are shown beside each other, unless more are asked for
MOST_RANKS = 64
COLUMNS = tuple(name for name, _ in STEPS)
_OF_BATCH = (probe.INPUT_WAIT, probe.FETCH)


@dataclass(frozen=True)
class StepList:
    """Some steps. `median_ns`: of all steps after the warm-up, which `times` is measured by."""

    total: int
    median_ns: float | None
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class WholeStep:
    """One step. Phases, lanes and batches are those of this rank and of the ranks with the longest own time at this step, out of
    `ranks`. `left_out`: slices for which there was no room.
    """

    step: dict[str, Any]
    first_ns: int
    last_ns: int
    phases: list[dict[str, Any]]
    lanes: list[dict[str, Any]]
    batches: list[dict[str, Any]]
    previous: int | None
    next: int | None
    ranks: int
    left_out: int


def steps_listed(
    run: Run,
    *,
    where: Sequence[str],
    over: float,
    rank: int | None,
    epoch: int | None,
    between: tuple[int | None, int | None],
    sort: str,
    descending: bool,
    offset: int,
    limit: int,
) -> StepList:
    """The steps that fit all of `where`, sorted by any column. Raises UnknownName for a column that does not exist."""
    columns = [*COLUMNS, "times"]
    if sort not in columns:
        raise UnknownName(f"There is no column {sort!r}. {nearest(sort, columns)}")
    median = median_step(run)
    conditions = {
        "all": "true",
        "slow": f"dur_ns > {over} * {median or 0}",
        "nan": "NOT isfinite(loss)",
        "skipped": "skipped",
        "warmup": "warmup",
    }
    asked = [conditions[word] for word in where]
    asked += [] if rank is None else [f"coalesce(rank, 0) = {rank}"]
    asked += [] if epoch is None else [f"epoch = {epoch}"]
    asked += [f"step {sign} {end}" for sign, end in zip((">=", "<="), between, strict=True) if end is not None]
    chosen = " AND ".join(asked)
    listed = ", ".join(f"start_ns - {run.started or 0}" if name == "start_ns" else f'"{name}"' for name in COLUMNS)
    times = f"dur_ns / {median}" if median else "NULL"
    by = "dur_ns" if sort == "times" else sort
    (total,) = run.sql(f"SELECT count(*) FROM steps WHERE {chosen}").fetchall()[0]
    rows = run.sql(
        f'SELECT {listed}, {times} FROM steps WHERE {chosen} ORDER BY "{by}" {"DESC" if descending else "ASC"} NULLS LAST, '
        f"step, rank, process LIMIT {limit} OFFSET {offset}"
    ).fetchall()
    return StepList(total, median, columns, [list(row) for row in rows])


def median_step(run: Run) -> float | None:
    """The median step after the warm-up, which others are measured by; without any, that of all. Estimated for very many steps."""
    (steps,) = run.sql("SELECT count(*) FROM steps").fetchall()[0]
    median = "approx_quantile(dur_ns, 0.5)" if steps > MOST_EXACT else "median(dur_ns)"
    after, every = run.sql(f"SELECT {median} FILTER (NOT warmup), {median} FROM steps").fetchall()[0]
    found: float | None = every if after is None else after
    return found


def find_step(run: Run, rank: int | None, step: int, process: str | None = None) -> dict[str, Any]:
    """The row of a step, in wall-clock time; of several, the first. A process without a rank is rank 0. Raises UnknownName."""
    given = "NULL" if rank is None else str(rank)
    whose = f"coalesce(rank, 0) = {rank or 0}"
    whose += "" if process is None else f" AND process = {quoted(process)}"
    rows = run.sql(
        f"SELECT * FROM steps WHERE step = {step} AND {whose} ORDER BY rank IS DISTINCT FROM {given}, start_ns LIMIT 1"
    ).fetchall()
    if not rows:
        low, high = run.sql(f"SELECT min(step), max(step) FROM steps WHERE {whose}").fetchall()[0]
        of = "this process" if rank is None else f"rank {rank}"
        known = f"It has steps {low} to {high}." if low is not None else "It has no steps."
        raise UnknownName(f"There is no step {step} of {of}. {known}")
    return dict(zip(COLUMNS, rows[0], strict=True))


def whole_step(
    run: Run, rank: int | None, step: int, process: str | None = None, ranks: int = SHOWN_RANKS
) -> WholeStep:
    """One step, with what happened beside it on up to `ranks` ranks. Raises UnknownName."""
    row, started = find_step(run, rank, step, process), run.started or 0
    median = median_step(run)
    own = quoted(row["process"])
    before, after = run.sql(
        f"SELECT max(step) FILTER (step < {step}), min(step) FILTER (step > {step}) FROM steps WHERE process = {own}"
    ).fetchall()[0]
    others = run.sql(
        f"SELECT process, start_ns, start_ns + dur_ns FROM steps WHERE step = {step} AND process IN ({_listed(_beside(run, row))}) "
        f"ORDER BY process <> {own}, dur_ns - coalesce(communication_ns, 0) DESC, rank, process"
    ).fetchall()
    windows = {name: (first, last) for name, first, last in others[:ranks]}
    batches = _batches(run, windows, step, started)
    lanes, left_out = _lanes(run, windows, batches, started)
    times = [
        time
        for lane in lanes
        for one in lane["slices"]
        for time in (one["start_ns"], one["start_ns"] + (one["dur_ns"] or 0))
    ]
    ends = [time - started for window in windows.values() for time in window]
    return WholeStep(
        step=row | {"start_ns": row["start_ns"] - started, "times": row["dur_ns"] / median if median else None},
        first_ns=min([*times, *ends]),
        last_ns=max(ends),
        phases=_phases(run, windows, step, started),
        lanes=lanes,
        batches=batches,
        previous=before,
        next=after,
        ranks=len(others),
        left_out=left_out,
    )


def _beside(run: Run, row: dict[str, Any]) -> list[str]:
    """The processes that ran at the same time: a job that was started again may have repeated this step."""
    attempts = {one["process"]: one["attempt"] for one in run.rows}
    return [process for process, attempt in attempts.items() if attempt == attempts[row["process"]]]


def _phases(run: Run, windows: dict[str, tuple[int, int]], step: int, started: int) -> list[dict[str, Any]]:
    names = ("rank", "process", "phase", "start_ns", "dur_ns", "calls")
    rows = run.sql(
        f"SELECT rank, process, phase, start_ns - {started}, dur_ns, calls FROM phases WHERE step = {step} "
        f"AND process IN ({_listed(windows)}) ORDER BY rank, process, start_ns NULLS LAST"
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


def _batches(run: Run, windows: dict[str, tuple[int, int]], step: int, started: int) -> list[dict[str, Any]]:
    names = (
        "rank",
        "process",
        "loader",
        "round",
        "batch",
        "worker",
        "size",
        "start_ns",
        "wait_ns",
        "fetch_ns",
        "purpose",
    )
    rows = run.sql(
        f"SELECT rank, process, loader, round, batch, worker, size, start_ns - {started}, wait_ns, fetch_ns, purpose FROM batches "
        f"WHERE step = {step} AND process IN ({_listed(windows)}) ORDER BY rank, process, start_ns"
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


def _lanes(
    run: Run, windows: dict[str, tuple[int, int]], batches: list[dict[str, Any]], started: int
) -> tuple[list[dict[str, Any]], int]:
    """What the threads of these processes did in the step, and what the loader workers did for its batches."""
    inside = _inside(run, windows, batches)
    columns = "process, lane, thread, name, cat, start_ns, dur_ns, depth, key, seq, error"
    rows = run.sql(
        f"SELECT {columns} FROM events WHERE kind = 'span' AND ({inside}) ORDER BY dur_ns DESC NULLS FIRST LIMIT {MOST_SLICES + 1}"
    ).fetchall()
    (total,) = (
        run.sql(f"SELECT count(*) FROM events WHERE kind = 'span' AND ({inside})").fetchall()[0]
        if len(rows) > MOST_SLICES
        else (len(rows),)
    )
    about, ids = {row["process"]: row for row in run.rows}, lane_ids(run)
    found: dict[str, dict[str, Any]] = {}
    for process, lane, thread, name, cat, start, dur, depth, key, seq, error in rows[:MOST_SLICES]:
        who = about[process]
        place = ids[process, lane or 0]
        one = found.setdefault(
            place,
            {
                "lane": place,
                "rank": who["rank"],
                "role": who["role"],
                "worker": who["worker"],
                "thread": thread,
                "slices": [],
            },
        )
        one["slices"].append(
            {"name": name, "cat": cat, "start_ns": start - started, "dur_ns": dur, "depth": depth, "seq": seq, "error": error, "process": process}
            | _about(cat, name, key)
        )  # fmt: skip
    lanes = sorted(
        found.values(), key=lambda one: (one["rank"] or 0, one["worker"] is not None, one["worker"] or 0, one["lane"])
    )
    for one in lanes:
        one["slices"].sort(key=lambda part: (part["start_ns"], part["depth"]))
    return lanes, total - min(total, MOST_SLICES)


def _inside(run: Run, windows: dict[str, tuple[int, int]], batches: list[dict[str, Any]]) -> str:
    """Which spans these are, as SQL."""
    inside = " OR ".join(
        f"(process = {quoted(name)} AND start_ns < {last} AND start_ns + coalesce(dur_ns, 0) >= {first})"
        for name, (first, last) in windows.items()
    )
    owner = owners(run.rows)
    helpers = [row["process"] for row in run.rows if row["worker"] is not None and owner.get(row["process"]) in windows]
    keys = {probe.batch_key(one["loader"], one["round"], one["batch"]) for one in batches if one["loader"] is not None}
    if helpers and keys:
        own = f"process IN ({', '.join(map(quoted, helpers))}) AND cat = '{probe.PROBE}'"
        fetched = f"name = '{probe.FETCH}' AND key IN ({', '.join(map(str, sorted(keys)))})"
        parents = f"SELECT process, seq FROM events WHERE {own} AND {fetched}"
        inside += f" OR ({own} AND ({fetched} OR (process, parent) IN ({parents})))"
    return inside


def _about(cat: str, name: str, key: int | None) -> dict[str, Any]:
    """What a slice is about: the index of an item, or the loader, round and number of a batch."""
    own = key if cat == probe.PROBE else None
    return {
        "index": own if name == probe.ITEM else None,
        "batch": list(probe.read_batch_key(own)) if own is not None and name in _OF_BATCH else None,
    }


def _listed(names: Any) -> str:
    return ", ".join(map(quoted, names)) or "NULL"
