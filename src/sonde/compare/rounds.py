"""Two programs run in turn, round by round: decides whether B is slower than A by more than a limit.

Each round gives one ratio of a low quantile of step time, B / A. Low quantiles are steady on busy machines: of 37 rounds of one
program against itself the ratio of p10 scattered by 6 %, that of means by 28 %. They are blind to slow-downs that hit some steps
only, so the time above the low quantile is judged apart, as a share of the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sonde.analysis.records.schema import quoted
from sonde.compare import confidence
from sonde.compare.gate import FAIL, INCONCLUSIVE, PASS, Check
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sonde.analysis.run import Run

    Floats = NDArray[np.float64]

LOW = 0.10  # the quantile of step time that is compared
LEAST_ROUNDS = 5  # before anything is said
STALL_ROUNDS = 10  # before stalls are
LEAST_STEPS = 10  # of a program in a round
PART = 20  # steps
LEAST_PARTS = 3


@dataclass(frozen=True)
class Turn:
    """What one program recorded in a round, in ns: its steps and when they ended, and looks at how long its thread has waited for a core."""

    steps: Floats
    ends: Floats
    looks: Sequence[tuple[float, float]] = ()

    @property
    def own(self) -> float | None:
        """The usual time of a step, stalls included, without waits for a core; None: the kernel did not say.

        The median over parts of the training of at least PART steps each.
        """
        parts = []
        for (first, waited), (last, later) in pairwise(self._marks()):
            count = np.count_nonzero((self.ends > first) & (self.ends <= last))
            parts.append((last - first - (later - waited)) / count)
        return float(np.median(parts)) if len(parts) >= LEAST_PARTS else None

    def _marks(self) -> list[tuple[float, float]]:
        """The looks that are at least PART steps apart."""
        chosen: list[tuple[float, float]] = []
        before = -PART
        for when, waited in self.looks:
            done = int(np.searchsorted(self.ends, when, side="right"))
            if done - before >= PART:
                chosen.append((when, waited))
                before = done
        return chosen


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


def turn_of(run: Run) -> Turn:
    """What a run recorded after its warm-up, of the process with the most steps."""
    longest = run.sql(
        "SELECT process, min(start_ns) FROM steps WHERE NOT warmup GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
    ).fetchall()
    process, begun = longest[0] if longest else ("", 0)
    mine = f"process = {quoted(process)}"
    rows = run.sql(f"SELECT dur_ns, start_ns + dur_ns FROM steps WHERE NOT warmup AND {mine} ORDER BY 2").fetchnumpy()
    looks = run.sql(
        f"SELECT start_ns, value FROM events WHERE kind = 'counter' AND cat = {quoted(probe.SYSTEM)} "
        f"AND name = {quoted(probe.WAITED)} AND {mine} AND start_ns >= {begun} ORDER BY start_ns"
    ).fetchall()
    steps, ends = (np.asarray(np.ma.getdata(column), np.float64) for column in rows.values())
    return Turn(steps, ends, looks)


def round_of(a: Turn, b: Turn) -> Round | None:
    """A round of two turns; None if there are too few steps. Means are compared without waits where both have them."""
    if min(len(a.steps), len(b.steps)) < LEAST_STEPS:
        return None
    low_a, low_b = (float(np.quantile(one.steps, LOW)) for one in (a, b))
    if a.own is not None and b.own is not None:
        return Round(low_a, low_b, a.own, b.own)
    return Round(low_a, low_b, float(a.steps.mean()), float(b.steps.mean()))


def interval(
    ratios: Sequence[float], draws: int = confidence.DRAWS, seed: int = confidence.SEED
) -> confidence.Interval:
    """The median of the ratios of rounds, with a confidence interval by bootstrap over rounds."""
    logs = np.log(np.asarray(ratios, np.float64))
    drawn = np.median(logs[np.random.default_rng(seed).integers(0, len(logs), (draws, len(logs)))], axis=1)
    low, high = np.quantile(drawn, [(1 - confidence.LEVEL) / 2, (1 + confidence.LEVEL) / 2])
    return confidence.Interval(*(math.exp(float(one)) for one in (np.median(logs), low, high)))


def noise(ratios: Sequence[float]) -> float:
    """By how much A differs from itself between two turns: the median of |log ratio|, as a share."""
    return math.expm1(float(np.median(np.abs(np.log(np.asarray(ratios, np.float64)))))) if ratios else 0.0


def check_rounds(rounds: Sequence[Round], most: float, *, stalls: bool = False) -> list[Check]:
    """Whether B is slower than A by more than `most`: steadily, and by stalls.

    Stalls that are not sure keep nothing from passing, unless `stalls` asks for an answer about them: that takes many rounds.
    """
    if len(rounds) < LEAST_ROUNDS:
        why = f"{len(rounds)} rounds were recorded; {LEAST_ROUNDS} are needed."
        return [Check("slowdown", INCONCLUSIVE, None, None, None, 1 + most, why)]
    checks = [_check("slowdown", "The fastest tenth of the steps", [one.steady for one in rounds], most)]
    if stalls or len(rounds) >= STALL_ROUNDS:
        whole = _check("stalls", "The mean step", [one.whole for one in rounds], most)
        if (stalls or whole.outcome == FAIL) and len(rounds) >= STALL_ROUNDS:
            checks.append(whole)
        elif stalls:
            why = f"Stalls are tested after {STALL_ROUNDS} rounds."
            checks.append(Check("stalls", INCONCLUSIVE, None, None, None, 1 + most, why))
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
