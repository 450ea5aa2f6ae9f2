"""Losses and metrics of evaluations in two runs, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.questions.metrics import metrics

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class MetricPair:
    """One metric of evaluations that a run logged: its last, lowest and highest value; null: that run did not log it."""

    name: str
    a_last: float | None
    b_last: float | None
    a_low: float | None
    b_low: float | None
    a_high: float | None
    b_high: float | None


def compare_metrics(a: Run, b: Run) -> list[MetricPair]:
    """The metrics of both, in the order in which A logs them. No interval is known: a run has one value at a time."""
    mine, theirs = ({one.name: one for one in metrics(run)} for run in (a, b))
    found = []
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        one, other = mine.get(name), theirs.get(name)
        values = [getattr(side, what, None) for what in ("last", "low", "high") for side in (one, other)]
        found.append(MetricPair(name, *values))
    return found
