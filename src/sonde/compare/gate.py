"""The gate: does a run stay within its limits? Pass, fail, or inconclusive without enough data.

A limit holds if the whole confidence interval lies below it, and is exceeded if the whole interval lies above it. Two runs recorded
at different times differ by some percent for no reason, so the interval of a slow-down is widened by that margin.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sonde import units
from sonde.compare import confidence
from sonde.compare.ratio import CROWDED, MARGINS, Ratio
from sonde.compare.summary import STEP, Summary
from sonde.compare.verdict import LEAST_STEPS, NOT_COMPARABLE, Times
from sonde.diagnosis.speed import PARTS
from sonde.errors import SettingError, nearest
from sonde.finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sonde.compare.divergence import Numbers

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
EXIT_CODES = {PASS: 0, FAIL: 1, INCONCLUSIVE: 3}
MS = 1_000_000
STEP_TIMES = ("p10_ms", "p50_ms", "p95_ms", "mean_ms")
SIZES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@dataclass(frozen=True)
class Limit:
    """The most that a metric may be: a number, or a share above the baseline."""

    metric: str
    most: float | None = None
    above: float | None = None  # 0.1: ten percent more than the baseline

    def __str__(self) -> str:
        return f"+{units.share(self.above)}" if self.above is not None else worded(self.metric, self.most)


@dataclass(frozen=True)
class Check:
    """One limit: what was measured, within which bounds, and what follows. None: not known."""

    name: str
    outcome: str
    value: float | None
    low: float | None
    high: float | None
    limit: float | None
    why: str


@dataclass(frozen=True)
class Gate:
    """All checks of a run. It fails if one fails, and passes only if all pass."""

    outcome: str
    run: str
    baseline: str | None
    checks: list[Check]
    notes: list[str] = field(default_factory=list)


def gate(run: str, baseline: str | None, checks: Sequence[Check], notes: Sequence[str] = ()) -> Gate:
    """Put checks together."""
    outcomes = {one.outcome for one in checks}
    whole = FAIL if FAIL in outcomes else PASS if outcomes == {PASS} else INCONCLUSIVE
    return Gate(whole, run, baseline, list(checks), list(notes))


# ── what is wanted, from the command line ────────────────────────────────────────────────────────────────────────────


def share(text: str) -> float:
    """A share: `5%` or `0.05`. Raises SettingError."""
    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?|\.\d+)\s*(%?)", text.strip())
    if found is None:
        raise SettingError(f"{text!r} is not a share. Write 5% or 0.05.")
    value = float(found[1]) / (100 if found[2] else 1)
    if value > 10:
        percent = "" if found[2] else f" Write {text.strip()}% if you mean percent."
        raise SettingError(f"{text!r} is {value:.0f} times as much; the most is 1000%.{percent}")
    return value


def limit(text: str) -> Limit:
    """A limit: `input_wait_share=0.1`, `peak_rss=2GB`, `p50_ms=+10%`. Raises SettingError."""
    name, found, value = (part.strip() for part in text.partition("="))
    if not found or not value:
        raise SettingError(
            f"{text!r} is not a limit. Write METRIC=VALUE, such as input_wait_share=0.1 or peak_rss=+10%."
        )
    if name not in METRICS:
        raise SettingError(f"There is no metric {name!r}. {nearest(name, list(METRICS))}")
    if value.startswith("+"):
        return Limit(name, above=share(value))
    if name.startswith("peak_"):
        return Limit(name, most=_size(value))
    if name.endswith("_share"):
        return Limit(name, most=share(value))
    try:
        most = float(value)
    except ValueError:
        most = math.nan
    if not 0 <= most < math.inf:
        raise SettingError(f"{value!r} is not a number of milliseconds. Write {name}=12.5 or {name}=+10%.")
    return Limit(name, most=most)


def _size(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text)
    if found is None or (found[2] and found[2].lower() not in SIZES):
        raise SettingError(f"{text!r} is not a size. Write 2GB, 500MB or a number of bytes.")
    return float(found[1]) * SIZES.get(found[2].lower(), 1)


# ── metrics of one run ───────────────────────────────────────────────────────────────────────────────────────────────

METRICS = (*STEP_TIMES, *(f"{part}_share" for part in PARTS), "peak_rss", "peak_device")


def measured(one: Summary, metric: str) -> tuple[float, float, float] | None:
    """A metric of a run and its bounds; None if it is not known. Peaks have no spread within a run."""
    if metric.startswith("peak_"):
        found = [memory.peak for kind, memory in one.memory.items() if (kind == "rss") == (metric == "peak_rss")]
        return (float(max(found)),) * 3 if found else None
    if metric in STEP_TIMES:
        name = metric.removesuffix("_ms")
        return _bounds(
            one.steps.phase(STEP) if name == "mean" else one.steps.blocks, name, getattr(one.steps, f"{name}_ns")
        )
    return _share(one, metric.removesuffix("_share"))


def _bounds(blocks: np.ndarray, name: str, value: float | None) -> tuple[float, float, float] | None:
    interval = confidence.ratio(np.ones((len(blocks), 1)), blocks, name) if len(blocks) else None
    if interval is None or value is None:
        return None
    low, high = (end * value / interval.ratio / MS for end in interval[1:])
    return value / MS, low, high


def _share(one: Summary, phase: str) -> tuple[float, float, float] | None:
    """The share of a phase in all step time, with the blocks drawn together."""
    steps, parts = one.steps.phase(STEP), one.steps.phase(phase)
    if not len(steps):
        return None
    if not len(parts):  # steps are known, and nothing of this phase was seen in them
        return (0.0, 0.0, 0.0) if one.steps.means else None
    value = float(parts.sum() / steps.sum())
    chosen = np.random.default_rng(confidence.SEED).integers(0, len(steps), (confidence.DRAWS, len(steps)))
    drawn = parts[chosen, 0].sum(axis=1) / steps[chosen, 0].sum(axis=1)
    low, high = np.quantile(drawn, [(1 - confidence.LEVEL) / 2, (1 + confidence.LEVEL) / 2])
    return value, float(low), float(high)


def worded(metric: str, value: float | None) -> str:
    """A value of a metric, with its unit."""
    if value is None or not math.isfinite(value):
        return "not known"
    if metric.startswith("peak_"):
        return units.size(int(value))
    return units.share(value) if metric.endswith("_share") else units.duration(value * MS)


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_limit(one: Summary, baseline: Summary | None, wanted: Limit) -> Check:
    """Whether a metric stays below its limit."""
    found = measured(one, wanted.metric)
    before = None if baseline is None else measured(baseline, wanted.metric)
    if found is None:
        return _unknown(wanted.metric, f"{wanted.metric} was not recorded in this run.")
    most = wanted.most
    if wanted.above is not None:
        if before is None:
            why = (
                "needs a baseline: give one with --baseline."
                if baseline is None
                else "was not recorded in the baseline."
            )
            return _unknown(wanted.metric, f"{wanted.metric}={wanted} {why}")
        most = before[0] * (1 + wanted.above)
    assert most is not None  # a limit has one or the other
    value, low, high = found
    outcome = _outcome(low, high, most)
    text = f"{wanted.metric} is {worded(wanted.metric, value)}{_between(wanted.metric, low, high)}, the limit {worded(wanted.metric, most)}."
    return Check(wanted.metric, outcome, value, low, high, most, text)


def check_slowdown(times: Times, a: Summary, b: Summary, most: float) -> list[Check]:
    """Whether steps are at most so much slower: the steady part of them, and stalls apart.

    On a quiet host the median decides, on a busy one a low quantile. Stalls, which both are blind to, fail the gate if the mean is
    surely above the limit. On a busy host, waits for a core are left out of it.
    """
    reason = _lacking(times, a, b)
    if reason is not None:
        return [_unknown("slowdown", reason)]
    crowded = a.crowded or b.crowded
    margins = CROWDED if crowded else MARGINS
    name, steady = ("p10", times.step_time.p10) if crowded else ("p50", times.step_time)
    words = "the fastest tenth of the steps" if crowded else "the median step"
    checks = [_slowdown("slowdown", steady, margins[name], most, words)]
    mean, of = times.step_time.mean, "the mean step"
    if crowded:
        mean, of = times.step_time.own, "the mean step, without waits for a core,"
    stalls = _slowdown("stalls", mean, margins["mean"], most, of)
    if stalls.outcome == FAIL:
        checks.append(stalls)
    return checks


def _slowdown(name: str, ratio: Ratio | None, margin: float, most: float, words: str) -> Check:
    if ratio is None or ratio.ratio is None or ratio.low is None or ratio.high is None:
        return _unknown(name, f"There are too few steps to compare {words}.")
    low, high = ratio.low / (1 + margin), ratio.high * (1 + margin)
    outcome = _outcome(low, high, 1 + most)
    text = (
        f"{words.capitalize()} takes {ratio.ratio:.3f}x the time of the baseline ({low:.3f} to {high:.3f}, allowing {units.share(margin)} "
        f"for differences between equal runs); the limit is {1 + most:.3f}x."
    )
    if outcome == INCONCLUSIVE and margin >= most:
        text += f" A limit below {units.share(margin)} needs --ab, which runs both programs in turn."
    return Check(name, outcome, ratio.ratio, low, high, 1 + most, text)


def check_findings(times: Times, severity: str) -> Check:
    """Whether the run has a finding that the baseline has not, of this severity or worse."""
    worse = SEVERITIES[SEVERITIES.index(severity) :]
    new = [one for one in times.findings.new if one.severity in worse]
    text = "; ".join(f"{one.kind}: {one.why}" for one in new) or f"No new finding of severity {severity}."
    return Check("new findings", FAIL if new else PASS, float(len(new)), None, None, 0.0, text)


def check_numbers(numbers: Numbers) -> Check:
    """Whether both runs computed the same."""
    outcome = INCONCLUSIVE if numbers.identical is None else PASS if numbers.identical else FAIL
    return Check("same numbers", outcome, None, None, None, None, numbers.text)


def check_apart(one: Summary, baseline: Summary) -> list[Check]:
    """A run against itself never passes: that would say nothing."""
    if one.run != baseline.run or one.started_ns != baseline.started_ns:
        return []
    return [_unknown("baseline", f"The run is its own baseline: both are {one.run}. Name another run.")]


def check_complete(one: Summary, what: str) -> list[Check]:
    """A run that lost records, or that goes on, never passes."""
    if one.drops:
        return [_unknown("records", f"{what} lost {units.count(one.drops)} records.")]
    if one.state == "recording":
        return [_unknown("records", f"{what} is still recording. Wait until it has ended.")]
    return []


def _lacking(times: Times, a: Summary, b: Summary) -> str | None:
    if times.verdict == NOT_COMPARABLE:
        return f"The runs cannot be compared: {' '.join(times.reasons)}"
    for one, what in ((a, "The baseline"), (b, "The run")):
        if one.steps.count < LEAST_STEPS:
            return f"{what} has {one.steps.count} steps after warm-up; {LEAST_STEPS} are needed."
    return None


def _unknown(name: str, why: str) -> Check:
    return Check(name, INCONCLUSIVE, None, None, None, None, why)


def _outcome(low: float, high: float, most: float) -> str:
    return PASS if high <= most else FAIL if low > most else INCONCLUSIVE


def _between(metric: str, low: float, high: float) -> str:
    return "" if low == high else f" ({worded(metric, low)} to {worded(metric, high)})"


def to_json(found: Gate) -> Mapping[str, object]:
    """A gate as JSON has it."""
    return {
        "outcome": found.outcome,
        "exit_code": EXIT_CODES[found.outcome],
        "run": found.run,
        "baseline": found.baseline,
        "checks": [vars(one) for one in found.checks],
        "notes": found.notes,
    }
