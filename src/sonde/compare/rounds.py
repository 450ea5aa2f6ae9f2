"""Two programs run in turn, round by round: tells whether B is slower than A by more than a limit.

Each round gives one ratio of a low quantile of step time, B / A. Low quantiles are steady on busy machines: of 37 rounds of one
program against itself the ratio of p10 scattered by 6 %, that of means by 28 %. They are blind to slow-downs that hit some steps
only, so the time above the low quantile is judged apart, as a share of the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonde.compare import intervals
from sonde.compare.gate import FAIL, INCONCLUSIVE, PASS, Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LOW = 0.10  # the quantile of step time that is compared
LEAST_ROUNDS = 5  # before anything is said
STALL_ROUNDS = 10  # before stalls are
LEAST_STEPS = 10  # of a program in a round


@dataclass(frozen=True)
class Round:
    """What one round gives: a low quantile and the mean of the steps of each program, in ns."""

    low_a: float
    low_b: float
    mean_a: float
    mean_b: float

    @property
    def steady(self) -> float:
        """B / A, without stalls."""
        return self.low_b / self.low_a

    @property
    def whole(self) -> float:
        """B / A, with them."""
        return self.mean_b / self.mean_a


def round_of(a: Sequence[float] | NDArray[np.float64], b: Sequence[float] | NDArray[np.float64]) -> Round | None:
    """A round, from the step times of both; None if there are too few."""
    one, other = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(len(one), len(other)) < LEAST_STEPS:
        return None
    return Round(float(np.quantile(one, LOW)), float(np.quantile(other, LOW)), float(one.mean()), float(other.mean()))


def interval(ratios: Sequence[float], draws: int = intervals.DRAWS, seed: int = intervals.SEED) -> intervals.Interval:
    """The median of the ratios of rounds, with a confidence interval by bootstrap over rounds."""
    logs = np.log(np.asarray(ratios, np.float64))
    drawn = np.median(logs[np.random.default_rng(seed).integers(0, len(logs), (draws, len(logs)))], axis=1)
    low, high = np.quantile(drawn, [(1 - intervals.LEVEL) / 2, (1 + intervals.LEVEL) / 2])
    return intervals.Interval(*(math.exp(float(one)) for one in (np.median(logs), low, high)))


def noise(ratios: Sequence[float]) -> float:
    """By how much A differs from itself between two turns: the median of |log ratio|, as a share."""
    return math.expm1(float(np.median(np.abs(np.log(np.asarray(ratios, np.float64)))))) if ratios else 0.0


def check_rounds(rounds: Sequence[Round], most: float) -> list[Check]:
    """Whether B is slower than A by more than `most`: steadily, and by stalls."""
    if len(rounds) < LEAST_ROUNDS:
        why = f"{len(rounds)} rounds were recorded; {LEAST_ROUNDS} are needed."
        return [Check("slowdown", INCONCLUSIVE, None, None, None, 1 + most, why)]
    checks = [_check("slowdown", "The fastest tenth of the steps", [one.steady for one in rounds], most)]
    if len(rounds) >= STALL_ROUNDS:
        stalls = _check("stalls", "The mean step", [one.whole for one in rounds], most)
        if stalls.outcome == FAIL:
            checks.append(stalls)
    return checks


def decided(checks: Sequence[Check], rounds: int) -> bool:
    """Whether more rounds would change nothing: it fails, or it passes and stalls had their chance."""
    outcomes = {one.outcome for one in checks}
    return FAIL in outcomes or (outcomes == {PASS} and rounds >= STALL_ROUNDS)


def _check(name: str, words: str, ratios: Sequence[float], most: float) -> Check:
    found = interval(ratios)
    outcome = PASS if found.high <= 1 + most else FAIL if found.low > 1 + most else INCONCLUSIVE
    why = f"{words} of B takes {found.ratio:.3f}x the time of A ({found.low:.3f} to {found.high:.3f}); the limit is {1 + most:.3f}x."
    return Check(name, outcome, found.ratio, found.low, found.high, 1 + most, why)
