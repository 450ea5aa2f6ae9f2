"""Where the time went, by name: count, total time, share of the run, and percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sonde.analysis.run import Run


class NameSummary(NamedTuple):
    """All spans of one category and name. Times are those of completed spans; None if there is none."""

    cat: str | None
    name: str | None
    count: int  # type: ignore[assignment]  # completed ones; that tuples have a count() of their own is of no use here
    total_ns: int
    share: float | None  # of the time that the run took; more than 1 where several ran at once
    mean_ns: float | None
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    errors: int
    open: int


_SUMMARY = """
    SELECT cat, name, count(dur_ns), coalesce(sum(dur_ns), 0)::BIGINT, avg(dur_ns),
           quantile_disc(dur_ns, [0.5, 0.95, 0.99]), max(dur_ns),
           count(*) FILTER (error), count(*) FILTER (open)
    FROM events WHERE kind = 'span' GROUP BY cat, name ORDER BY 4 DESC, cat, name
"""


def summarize(run: Run) -> list[NameSummary]:
    """One entry per category and name, the largest total first."""
    took = wall_ns(run)
    return [
        NameSummary(cat, name, count, total, total / took if took else None, mean, *(points or (None,) * 3), *rest)
        for cat, name, count, total, mean, points, *rest in run.sql(_SUMMARY).fetchall()
    ]


def wall_ns(run: Run) -> int | None:
    """How long the run took: from its first event to the end of its last process, or to the last event of a dead one."""
    ((ended,),) = run.sql("SELECT max(greatest(coalesce(end_ns, last_ns), last_ns)) FROM processes").fetchall()
    begun = run.database.source.first_ns()
    return None if ended is None or begun is None else int(ended) - begun
