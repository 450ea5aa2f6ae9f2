"""Losses and metrics of evaluations: the first, the last, the lowest and the highest value of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.run import Run

MOST = 24  # metrics


@dataclass(frozen=True)
class MetricSummary:
    """One metric of evaluations, of the first rank that has it. Steps say when it was logged."""

    name: str
    source: str
    count: int
    first: float
    last: float
    last_step: int | None
    low: float
    low_step: int | None
    high: float
    high_step: int | None


def metrics(run: Run, most: int = MOST) -> list[MetricSummary]:
    """Those of a run, in the order in which they were first logged. Values that are not finite do not count."""
    names = run.database.source.name_counts.values()
    if not any(one.cat == probe.LOG or one.cat.startswith(probe.METRIC) for named in names for one in named):
        return []
    rows = run.sql(
        """
        SELECT name, any_value(source), count(*), arg_min(value, time_ns), arg_max(value, time_ns), arg_max(step, time_ns),
               min(value), arg_min(step, value), max(value), arg_max(step, value)
        FROM metrics WHERE evaluation AND isfinite(value)
            AND coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM metrics WHERE evaluation)
        GROUP BY name ORDER BY min(time_ns), name
        """
    ).fetchall()
    return [MetricSummary(*row) for row in rows[:most]]
