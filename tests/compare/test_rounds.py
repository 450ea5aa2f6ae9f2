"""Two programs in turn: the ratios of rounds, and what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sonde.compare import rounds
from sonde.compare.gate import FAIL, INCONCLUSIVE, PASS, gate

MS = 1e6


def turn(steps: Any, waited: float | None = None) -> rounds.Turn:
    """A program with these steps, that waited so long for a core in each; None: nobody looked at that."""
    ends = np.cumsum(steps)
    looks = [] if waited is None else [(float(end), waited * number) for number, end in enumerate(ends)]
    return rounds.Turn(steps, ends, looks)


def played(random: np.random.Generator, slower: float = 1.0, every: int = 0, stall: float = 1.0) -> rounds.Round:
    """One round of 250 steps of 2 ms on a busy machine: both share its speed, and each has stalls of its own."""
    speed = random.normal(1, 0.05)

    def steps(factor: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        found = 2 * MS * speed * random.normal(1, 0.01) * factor * (1 + random.gamma(0.5, 0.3, 250))
        return np.asarray(found, np.float64)

    a, b = steps(1.0), steps(slower)
    if every:
        b[::every] *= stall
    found = rounds.round_of(turn(a), turn(b))
    assert found is not None
    return found


def outcome(seed: int, count: int, most: float, **how: float) -> str:
    random = np.random.default_rng(seed)
    checks = rounds.check_rounds([played(random, **how) for _ in range(count)], most)  # type: ignore[arg-type]
    return gate("b", "a", checks).outcome


def test_a_tenth_slower_is_found_in_ten_rounds() -> None:
    """In at least 95 of 100 trials."""
    assert sum(outcome(seed, 10, 0.05, slower=1.10) == FAIL for seed in range(100)) >= 95


def test_a_program_against_itself_passes() -> None:
    """In at least 90 % of the trials, and it fails in at most 1 %."""
    found = [outcome(seed, 10, 0.05) for seed in range(300)]
    assert found.count(FAIL) <= 3
    assert found.count(PASS) >= 270


def test_stalls_of_some_steps_are_found_by_the_mean() -> None:
    """Every twentieth step takes five times as long: the low quantile is blind to that."""
    random = np.random.default_rng(1)
    found = rounds.check_rounds([played(random, every=20, stall=5.0) for _ in range(rounds.STALL_ROUNDS)], 0.05)
    assert [(one.name, one.outcome) for one in found] == [("slowdown", PASS), ("stalls", FAIL)]


def test_few_rounds_are_inconclusive() -> None:
    """Whatever they say."""
    assert outcome(0, rounds.LEAST_ROUNDS - 1, 0.05, slower=3.0) == INCONCLUSIVE


def test_a_round_with_few_steps_is_none() -> None:
    """There is no quantile of them."""
    few, many = (turn(np.ones(count)) for count in (5, 100))
    assert rounds.round_of(few, many) is None


def test_means_are_compared_without_waits_for_a_core_if_both_are_known() -> None:
    """What other programs took is no difference between these two."""
    plain, crowded = turn(np.full(100, 2 * MS), 0.0), turn(np.full(100, 6 * MS), 3.8 * MS)
    assert rounds.round_of(plain, crowded).whole == pytest.approx(1.1)  # type: ignore[union-attr]
    assert rounds.round_of(turn(plain.steps), crowded).whole == pytest.approx(3.0)  # type: ignore[union-attr]


def test_a_training_with_few_looks_has_no_time_without_waits() -> None:
    """Or with all of them at once."""
    steps = np.full(100, 2 * MS)
    assert turn(steps, 0.5 * MS).own == pytest.approx(1.5 * MS)
    assert turn(steps[:30], 0.5 * MS).own is None
    assert turn(steps).own is None


def test_the_interval_holds_the_median_ratio() -> None:
    """And is the same each time."""
    ratios = [1.0, 1.1, 1.2, 1.05, 1.15]
    found = rounds.interval(ratios)
    assert found == rounds.interval(ratios)
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(1.1)


def test_noise_is_the_usual_distance_from_one() -> None:
    """In both directions."""
    assert rounds.noise([1.05, 1 / 1.05, 1.05]) == pytest.approx(0.05)


def test_stalls_can_be_asked_for() -> None:
    """Then a pass needs an answer about them, which few rounds do not give."""
    random = np.random.default_rng(3)
    found = [played(random, every=20, stall=5.0) for _ in range(rounds.STALL_ROUNDS)]
    few = rounds.check_rounds(found[: rounds.LEAST_ROUNDS], 0.05, stalls=True)
    assert [(one.name, one.outcome) for one in few] == [("slowdown", PASS), ("stalls", INCONCLUSIVE)]
    same = [played(random) for _ in range(40)]
    assert [one.name for one in rounds.check_rounds(same, 0.05, stalls=True)] == ["slowdown", "stalls"]
