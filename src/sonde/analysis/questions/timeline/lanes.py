"""The lanes of a timeline: one for each thread, and one for all loader workers with the same number, which restart each epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.owners import owners
from sonde.analysis.records.schema import quoted
from sonde.weak import WeakTable

if TYPE_CHECKING:
    from sonde.analysis.run import Run


Thread = tuple[str, int]  # a process, and the number of one of its threads


@dataclass(frozen=True)
class Lane:
    """One lane. `depth`: that of its innermost spans. `threads`: the (process, lane) pairs of the table `events` that it shows.

    `events`: its spans.
    """

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


def lane_ids(run: Run) -> dict[Thread, str]:
    """What the lane of each thread that has spans is called."""
    return {(process, lane or 0): one.id for one in lanes(run) for process, lane in one.threads}


_KNOWN: WeakTable[list[Lane]] = WeakTable()  # by the database of a run, which is made anew when the run is read again


def lanes(run: Run) -> list[Lane]:
    """All lanes that have spans, by rank; workers below the process that they load for. They are counted once."""
    found = _KNOWN.get(run.database)
    if found is None:
        found = _KNOWN[run.database] = _counted(run)
    return found


def _counted(run: Run) -> list[Lane]:
    rows = sorted([*_sealed(run), *_read(run)], key=lambda row: (row[0], row[1] or 0))
    about = {row["process"]: row for row in run.rows}
    owner = owners(run.rows)
    place: Counter[str] = (
        Counter()
    )  # of a thread among those of its process: other threads may have the lanes before it
    found: dict[str, Lane] = {}
    for process, lane, thread, count, depth in rows:
        row = about[process]
        place[process] += 1
        of = process if row["worker"] is None else owner.get(process, process)
        id = f"{process}:{lane or 0}" if row["worker"] is None else f"{of}:w{row['worker']}:{place[process]}"
        known = found.get(id)
        threads = [*(known.threads if known else ()), (process, lane)]
        total = count + (known.events if known else 0)
        deepest = max(depth, known.depth if known else 0)
        found[id] = Lane(id, row["host"], row["rank"], row["role"], row["worker"], thread, of, total, deepest, threads)
    return sorted(found.values(), key=_order)


Counted = tuple[str, int | None, str | None, int, int]  # process, lane, thread, how many spans, and how deep


def _sealed(run: Run) -> list[Counted]:
    """The lanes that the parts of a sealed run name."""
    return [(one.process, one.lane, one.thread, one.spans, one.depth) for one in run.database.parts.lanes]


def _read(run: Run) -> list[Counted]:
    """The lanes of all other processes."""
    known = run.database.parts.with_pyramid
    others = [row["process"] for row in run.rows if row["process"] not in known]
    if not others:
        return []
    chosen = f"AND process IN ({', '.join(map(quoted, others))})" if known else ""
    return run.sql(
        f"SELECT process, lane, any_value(thread), count(*), max(depth) FROM events WHERE kind = 'span' {chosen} GROUP BY process, lane"
    ).fetchall()


def _order(one: Lane) -> tuple[Any, ...]:
    late = one.role == "launcher"
    return (late, one.rank is None, one.rank or 0, one.process, one.worker is not None, one.worker or 0, one.id)


def chosen(found: list[Lane], ids: list[str]) -> list[Lane]:
    """The lanes of these names, or all."""
    return [one for one in found if one.id in set(ids)] if ids else found


def condition(some: list[Lane]) -> str:
    """Rows of `events` that lie in these lanes, as SQL."""
    return of_threads((process, lane or 0) for one in some for process, lane in one.threads)


def of_threads(threads: Iterable[Thread]) -> str:
    """Rows of some threads, as SQL."""
    pairs = sorted(threads)
    processes = ", ".join(sorted({quoted(process) for process, _ in pairs})) or "NULL"
    listed = ", ".join(f"({quoted(process)}, {lane})" for process, lane in pairs) or "(NULL, NULL)"
    return f"process IN ({processes}) AND (process, coalesce(lane, 0)) IN ({listed})"
