"""Trials of the gate: each takes rounds from a pool in a random order and decides as `sonde gate --ab` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sonde.compare import rounds
from sonde.compare.gate import gate

LIMIT = 0.05
SEED = 1


class Case(NamedTuple):
    """What is compared with A, and in how many trials."""

    program: str
    trials: int
    rounds: int
    stalls: bool = False


CASES = (
    Case("same", 300, 15),
    Case("slower", 100, 15),
    Case("stalls", 100, 15),
    Case("stalls", 100, 40, stalls=True),
    Case("stalls", 100, 100, stalls=True),
    Case("same", 100, 100, stalls=True),
)


class Outcome(NamedTuple):
    """What came of the trials of a case: shares of the trials, and the rounds that a trial took in the mean."""

    case: Case
    passed: float
    failed: float
    inconclusive: float
    taken: float


def outcome(pool: Sequence[dict[str, Any]], case: Case) -> Outcome:
    """All trials of a case. Of a pool that has fewer rounds than a trial may take, rounds are drawn with replacement."""
    known = [found for one in pool if (found := rounds.round_of(_turn(one["a"]), _turn(one[case.program]))) is not None]
    random = np.random.default_rng(SEED)
    counts: Counter[str] = Counter()
    taken = 0
    for _ in range(case.trials):
        places = random.choice(len(known), case.rounds, replace=case.rounds > len(known))
        drawn = [known[place] for place in places]
        if case.program == "same":  # which of the two is called A makes no difference
            drawn = [_swapped(one) if random.random() < 0.5 else one for one in drawn]
        said, count = _decided(drawn, case.stalls)
        counts[said] += 1
        taken += count
    passed, failed, inconclusive = (counts[word] / case.trials for word in ("pass", "fail", "inconclusive"))
    return Outcome(case, passed, failed, inconclusive, taken / case.trials)


def _decided(drawn: Sequence[rounds.Round], stalls: bool) -> tuple[str, int]:
    """What the gate says, and after how many rounds."""
    for count in range(1, len(drawn) + 1):
        checks = rounds.check_rounds(drawn[:count], LIMIT, stalls=stalls)
        if rounds.decided(checks, count):
            break
    return gate("b", "a", checks).outcome, count


def _swapped(one: rounds.Round) -> rounds.Round:
    return rounds.Round(one.low_b, one.low_a, one.mean_b, one.mean_a)


def _turn(content: dict[str, Any]) -> rounds.Turn:
    steps, ends = (np.asarray(content[part], np.float64) for part in ("steps", "ends"))
    return rounds.Turn(steps, ends, [(when, waited) for when, waited in content["looks"]])
