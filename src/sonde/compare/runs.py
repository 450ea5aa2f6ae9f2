"""Compares opened runs: two with everything, or several, ranked beside a baseline."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from sonde.compare.confidence import FASTER, INCONCLUSIVE, SAME, SLOWER
from sonde.compare.differences import ItemRow
from sonde.compare.divergence import Numbers, compare_numbers
from sonde.compare.evaluation import MetricPair, compare_metrics
from sonde.compare.fingerprint import compare_fingerprints
from sonde.compare.resume import Resume, restarts, resumes
from sonde.compare.summary import Summary, item_medians, summarize
from sonde.compare.verdict import MIXED, NOT_COMPARABLE, Times, compare_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.analysis.run import Run

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RunInfo:
    """Which run it is."""

    id: str
    name: str
    path: str
    ended: str
    steps: int
    warmup: int
    verdict: str | None  # of the diagnosis of this run alone


@dataclass(frozen=True)
class Comparison(Times):
    """Two runs, A (the baseline) and B."""

    a: RunInfo = None  # type: ignore[assignment]  # given by keyword, behind fields with defaults
    b: RunInfo = None  # type: ignore[assignment]
    numbers: Numbers = None  # type: ignore[assignment]
    evaluation: list[MetricPair] = field(default_factory=list)
    resume: list[Resume] = field(default_factory=list)  # empty: B does not go on from a checkpoint of A
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Restarts:
    """The restarts inside one run."""

    run: str
    resume: list[Resume]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class RankedRun:
    """One run of a ranking. `ratio`, `low`, `high` of the median step, against the baseline."""

    run: str
    name: str
    baseline: bool
    verdict: str | None
    ratio: float | None
    low: float | None
    high: float | None
    steps: int
    p10_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    mean_ns: float | None
    samples_per_s: float | None
    input_wait_share: float | None
    peak_rss: int | None
    loss: float | None
    finding: str | None


@dataclass(frozen=True)
class Ranking:
    """Several runs, the best first; the first that was named is the baseline."""

    baseline: str
    by: str
    ranking: list[RankedRun]
    comparisons: list[Comparison]
    schema_version: int = SCHEMA_VERSION


METRICS = ("p50", "p10", "p95", "mean", "samples_per_s", "input_wait_share", "peak_rss", "loss", "steps", "verdict")


ORDER = (FASTER, None, SAME, MIXED, INCONCLUSIVE, SLOWER, NOT_COMPARABLE)  # None: the baseline


def compare_runs(a: Run, b: Run) -> Comparison:
    """Compare two runs: A is the baseline."""
    return _comparison(a, b, summarize(a), summarize(b))


def restarts_of(run: Run) -> Restarts:
    """What the restarts inside one run did."""
    return Restarts(run.id, restarts(run))


def rank_runs(runs: Sequence[Run], by: str) -> Ranking:
    """Compare several runs with the first of them, and rank them all by a metric."""
    summaries = [summarize(run) for run in runs]
    found = [
        _comparison(runs[0], run, summaries[0], summary) for run, summary in zip(runs[1:], summaries[1:], strict=True)
    ]
    rows = [_row(summary, one) for summary, one in zip(summaries, [None, *found], strict=True)]
    return Ranking(runs[0].id, by, sorted(rows, key=lambda row: _place(row, by)), found)


def _comparison(a: Run, b: Run, mine: Summary, theirs: Summary) -> Comparison:
    times = compare_times(mine, theirs)
    parts = {one.name: getattr(times, one.name) for one in fields(Times)}
    parts["items"] = replace(times.items, rows=_known_items(a, b, times.items.rows))
    return Comparison(
        **parts,
        a=_about(mine),
        b=_about(theirs),
        numbers=compare_numbers(a, b, compare_fingerprints(a, b)),
        evaluation=compare_metrics(a, b),
        resume=resumes(a, b),
    )


def _known_items(a: Run, b: Run, rows: list[ItemRow]) -> list[ItemRow]:
    """The same rows, with the time of an item also where it was not among the slowest."""
    mine = item_medians(a, [row.item for row in rows if row.a_ns is None])
    theirs = item_medians(b, [row.item for row in rows if row.b_ns is None])
    return [ItemRow(row.item, row.a_ns or mine.get(row.item), row.b_ns or theirs.get(row.item)) for row in rows]


def _about(one: Summary) -> RunInfo:
    verdict = one.findings[0].kind if one.findings else None
    return RunInfo(one.run, one.name, one.path, one.ended, one.steps.count, one.steps.warmup, verdict)


def _row(one: Summary, against: Comparison | None) -> RankedRun:
    steps, time = one.steps, None if against is None else against.step_time
    waited = steps.means.get("input_wait")
    rss = one.memory.get("rss")
    return RankedRun(
        run=one.run,
        name=one.name,
        baseline=against is None,
        verdict=None if against is None else against.verdict,
        ratio=None if time is None else time.ratio,
        low=None if time is None else time.low,
        high=None if time is None else time.high,
        steps=steps.count,
        p10_ns=steps.p10_ns,
        p50_ns=steps.p50_ns,
        p95_ns=steps.p95_ns,
        mean_ns=steps.mean_ns,
        samples_per_s=steps.samples_per_s,
        input_wait_share=sum(waited) / sum(steps.means["step"]) if waited else None,
        peak_rss=None if rss is None else rss.peak,
        loss=one.loss,
        finding=one.findings[0].kind if one.findings else None,
    )


def _place(row: RankedRun, by: str) -> tuple[bool, float, float]:
    """What to sort by: the best first, and what is not known last."""
    if by == "verdict":
        return False, ORDER.index(row.verdict), row.p50_ns or 0.0
    value = getattr(row, by, None) if by in RankedRun.__dataclass_fields__ else getattr(row, f"{by}_ns")
    more = by in ("samples_per_s", "steps")
    return value is None, (-value if more else value) if value is not None else 0.0, 0.0
