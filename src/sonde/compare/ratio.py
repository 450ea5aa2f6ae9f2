"""A number of two runs and its ratio, with an interval; by how much equal runs may differ."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sonde import units
from sonde.compare import confidence
from sonde.compare.confidence import INCONCLUSIVE, SAME, Interval

if TYPE_CHECKING:
    pass

# What two runs of one program differ by at different times: on a quiet host, and beside others that use its cores (measured).
MARGINS = {"p10": 0.03, "p50": 0.03, "mean": 0.05}
CROWDED = {"p10": 0.08, "p50": 0.50, "mean": 0.30}


@dataclass(frozen=True)
class Ratio:
    """A number of both runs, and B / A with its interval. None: not known."""

    a: float | None
    b: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None  # of lower is better


def ratio_of(a: float | None, b: float | None, interval: Interval | None, margin: float) -> Ratio:
    """The ratio of two numbers; the interval is moved to it, since it was made of blocks that keep fewer steps."""
    if interval is None or not a or not b:
        return Ratio(a, b)
    moved = Interval(*(end * (b / a) / interval.ratio for end in interval))
    low, high = (end if math.isfinite(end) else None for end in moved[1:])
    found = Ratio(a, b, b / a, low, high, confidence.judge(moved, margin))
    # A wide margin, on a busy host, keeps a difference from being claimed; it does not make it none.
    doubtful = found.verdict == SAME and not is_equal(found, min(margin, MARGINS["mean"]))
    return replace(found, verdict=INCONCLUSIVE) if doubtful else found


def signed(ns: float | None) -> str:
    """`+1.2 ms`, `-3 ms`."""
    if ns is None:
        return units.MISSING
    return ("+" if ns >= 0 else "") + units.duration(ns)


def between(low: float | None, high: float | None) -> str:
    """`0.97 to 1.03`; nothing where nothing is known."""
    if low is None and high is None:
        return ""
    return " to ".join("?" if end is None else f"{end:.3f}" for end in (low, high))


def is_equal(one: Ratio, margin: float) -> bool:
    """Whether nothing speaks for a difference: the interval holds 1, or lies within the margin."""
    low, high = one.low or 0.0, math.inf if one.high is None else one.high
    return low <= 1 <= high or (low >= 1 / (1 + margin) and high <= 1 + margin)
