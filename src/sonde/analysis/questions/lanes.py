"""The lanes of a timeline: one for each thread, and one for all loader workers of one number, which each epoch starts anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.owners import owners
from sonde.analysis.records.schema import quoted
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class Lane:
    """One lane. `depth`: that of its innermost spans. `threads`: the (process, lane) pairs of the table `events` that it shows."""

    id: str
    host: str
    rank: int | None
    role: str | None
    worker: int | None
    thread: str | None
    process: str
    events: int
    depth: int
    threads: list[tuple[str, int | None]]


def lane_id(row: Mapping[str, Any], lane: int | None, owner: Mapping[str, str]) -> str:
    """What a thread's lane is called; `row` is that of its process."""
    if row["worker"] is not None:
        return f"{owner.get(row['process'], row['process'])}:w{row['worker']}:{lane or 0}"
    return f"{row['process']}:{lane or 0}"


_KNOWN: WeakTable[list[Lane]] = WeakTable()  # by the database of a run, which is made anew when the run is read again


def lanes(run: Run) -> list[Lane]:
    """All lanes that have spans, by rank; workers below the process that they load for. They are counted once."""
    found = _KNOWN.get(run.database)
    if found is None:
        found = _KNOWN[run.database] = _counted(run)
    return found


def _counted(run: Run) -> list[Lane]:
    rows = run.sql(
        "SELECT process, lane, any_value(thread), count(*), max(depth) FROM events WHERE kind = 'span' GROUP BY process, lane ORDER BY 1, 2"
    ).fetchall()
    about = {row["process"]: row for row in run.rows}
    owner = owners(run.rows)
    found: dict[str, Lane] = {}
    for process, lane, thread, count, depth in rows:
        row = about[process]
        id = lane_id(row, lane, owner)
        known = found.get(id)
        threads = [*(known.threads if known else ()), (process, lane)]
        total = count + (known.events if known else 0)
        deepest = max(depth, known.depth if known else 0)
        of = owner.get(process, process) if row["worker"] is not None else process
        found[id] = Lane(id, row["host"], row["rank"], row["role"], row["worker"], thread, of, total, deepest, threads)
    return sorted(found.values(), key=_order)


def _order(one: Lane) -> tuple[Any, ...]:
    late = one.role == "launcher"
    return (late, one.rank is None, one.rank or 0, one.process, one.worker is not None, one.worker or 0, one.id)


def chosen(found: list[Lane], ids: list[str]) -> list[Lane]:
    """The lanes of these names, or all."""
    return [one for one in found if one.id in set(ids)] if ids else found


def condition(some: list[Lane], everything: bool) -> str:
    """Rows of `events` that lie in these lanes, as SQL."""
    if everything:
        return "true"
    pairs = [pair for one in some for pair in one.threads]
    processes = ", ".join({quoted(process) for process, _ in pairs}) or "NULL"
    listed = ", ".join(f"({quoted(process)}, {lane or 0})" for process, lane in pairs) or "(NULL, NULL)"
    return f"process IN ({processes}) AND (process, coalesce(lane, 0)) IN ({listed})"
