"""How two series of step times differ: ratios with confidence intervals, by a block bootstrap over consecutive steps.

Pure functions over arrays of durations. A ratio is B / A: below 1, B is faster. The same input gives the same interval.

    interval = ratio(a, b, "p50")            # a, b: blocks of consecutive steps, one per row. Interval(ratio=1.12, low=1.09, high=1.15)
    judge(interval, margin=0.03)             # "slower"
    more_steps(interval, 0.03, steps=200)    # 0: it is sure already
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FASTER, SLOWER, SAME, INCONCLUSIVE = "faster", "slower", "same", "inconclusive"
BLOCKS = 40  # of consecutive steps, drawn as a whole: neighbours share what the machine did
LEAST_BLOCKS = 5
DRAWS = 1000
LEVEL = 0.95  # of the confidence intervals
SEED = 20
MOST_STEPS = 10_000_000  # more than that is no advice
TREND = 0.85  # rank correlation of the tenths of a run with time
DRIFT = 0.10  # the last fifth against the first
STEADY = 0.15  # a tenth within that of the last half is no warm-up


class Interval(NamedTuple):
    """A ratio B / A and its confidence interval."""

    ratio: float
    low: float
    high: float


class Change(NamedTuple):
    """A difference B - A and its confidence interval."""

    difference: float
    low: float
    high: float


def ratio(a: Floats, b: Floats, statistic: str = "p50", draws: int = DRAWS, seed: int = SEED) -> Interval | None:
    """The ratio B / A of a statistic (`p10`, `p50`, `p95`, `mean`) of two sets of blocks; None if it is not known."""
    of = STATISTICS[statistic]
    if a.size == 0 or b.size == 0 or of(a.reshape(1, -1))[0] <= 0 or of(b.reshape(1, -1))[0] <= 0:
        return None
    middle = math.log(of(b.reshape(1, -1))[0] / of(a.reshape(1, -1))[0])
    random = np.random.default_rng(seed)
    with np.errstate(divide="ignore"):
        drawn = np.log(of(_drawn(b, draws, random))) - np.log(of(_drawn(a, draws, random)))
    low, high = _widened(middle, drawn[np.isfinite(drawn)], min(len(a), len(b)))
    return Interval(math.exp(middle), math.exp(low), math.exp(high))


def change(a: Floats, b: Floats, draws: int = DRAWS, seed: int = SEED) -> Change | None:
    """The difference B - A of the means of two sets of blocks; None if one is empty."""
    if a.size == 0 or b.size == 0:
        return None
    middle = float(b.mean() - a.mean())
    random = np.random.default_rng(seed)
    drawn = _drawn(b, draws, random).mean(axis=1) - _drawn(a, draws, random).mean(axis=1)
    return Change(middle, *_widened(middle, drawn, min(len(a), len(b))))


def judge(interval: Interval, margin: float) -> str:
    """faster, slower, same (the whole interval lies within the margin) or inconclusive."""
    if interval.low > 1 + margin:
        return SLOWER
    if interval.high < 1 / (1 + margin):
        return FASTER
    return SAME if interval.high <= 1 + margin and interval.low >= 1 / (1 + margin) else INCONCLUSIVE


def more_steps(interval: Interval, margin: float, steps: int) -> int | None:
    """How many more steps of each run would settle it, at this ratio: 0 if it is settled, None if no number would.

    The width of the interval shrinks with the root of the number of steps.
    """
    if judge(interval, margin) != INCONCLUSIVE:
        return 0
    distance = abs(abs(math.log(interval.ratio)) - math.log1p(margin))
    half = (math.log(interval.high) - math.log(interval.low)) / 2
    if distance == 0 or (half / distance) ** 2 * steps > MOST_STEPS:
        return None
    return max(1, math.ceil(steps * ((half / distance) ** 2 - 1)))


def warmup(durations: Sequence[float] | Floats) -> int:
    """How many first steps are slower than the run becomes: whole tenths of it, and all of it if it never gets steady."""
    tenths = _tenths(durations)
    if tenths is None:
        return 0
    usual = float(np.median(tenths[5:]))
    slow = tenths > usual * (1 + STEADY)
    if not slow[0]:
        return 0
    first = int(np.argmin(slow)) if not slow.all() else 10
    falling = bool(np.all(np.diff(tenths) < 0)) and tenths[-2] > tenths[-1] * (1 + STEADY / 3)
    return len(durations) if falling else len(durations) * first // 10


def drift(durations: Sequence[float] | Floats) -> float | None:
    """The last fifth of the steps against the first fifth, if steps get slower or faster all along; None if not."""
    tenths = _tenths(durations)
    if tenths is None:
        return None
    order = np.corrcoef(np.arange(10), np.argsort(np.argsort(tenths)))[0, 1]
    grown = float((tenths[8] + tenths[9]) / (tenths[0] + tenths[1]))
    return grown if abs(order) >= TREND and abs(math.log(grown)) >= math.log1p(DRIFT) else None


def _tenths(durations: Sequence[float] | Floats) -> Floats | None:
    """The median of each tenth of a series; None of one that is too short to show a course."""
    series = np.asarray(durations, np.float64)
    if len(series) < 20 or series.min() <= 0:
        return None
    return np.array([np.median(part) for part in np.array_split(series, 10)])


def _drawn(blocks: Floats, draws: int, random: np.random.Generator) -> Floats:
    """Blocks drawn with replacement, as many as there are: one row for each draw."""
    chosen = random.integers(0, len(blocks), (draws, len(blocks)))
    return blocks[chosen].reshape(draws, -1)


def _widened(middle: float, drawn: Floats, blocks: int) -> tuple[float, float]:
    """The interval around the estimate; of few blocks it is wider, as Student's t is."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if blocks < 2:
        return -math.inf, math.inf
    factor = math.sqrt(blocks / (blocks - 1)) * (1 + 1.25 / (blocks - 1))
    return middle + min(0.0, float(low) - middle) * factor, middle + max(0.0, float(high) - middle) * factor


def _quantile(place: float) -> Callable[[Floats], Floats]:
    def of(rows: Floats) -> Floats:
        found: Floats = np.quantile(rows, place, axis=1)
        return found

    return of


def _mean(rows: Floats) -> Floats:
    found: Floats = rows.mean(axis=1)
    return found


STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "p10": _quantile(0.10),
    "p50": _quantile(0.50),
    "p95": _quantile(0.95),
    "mean": _mean,
}
