"""Ratios of step times with their confidence intervals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sonde.compare import confidence

MS = 1_000_000


def steps(count: int = 300, middle: float = 10.0, scatter: float = 0.05, seed: int = 1) -> NDArray[np.float64]:
    """Step times with some noise, in ns."""
    return middle * MS * np.exp(np.random.default_rng(seed).normal(0, scatter, count))


def blocks_of(values: NDArray[np.float64] | list[float]) -> NDArray[np.float64]:
    """A series in at most 40 blocks of consecutive values, one per row."""
    size = max(1, min(4, len(values) // confidence.LEAST_BLOCKS), -(-len(values) // confidence.BLOCKS))
    return np.array(values[: len(values) // size * size], np.float64).reshape(-1, size)


def compared(a: NDArray[np.float64], b: NDArray[np.float64], statistic: str = "p50") -> confidence.Interval:
    """The interval of two series."""
    found = confidence.ratio(blocks_of(a), blocks_of(b), statistic)
    assert found is not None
    return found


def test_a_slower_run_is_slower() -> None:
    """20 % more time is found, and the interval holds the truth."""
    found = compared(steps(seed=1), steps(middle=12.0, seed=2))
    assert found.low <= 1.2 <= found.high
    assert confidence.judge(found, 0.03) == confidence.SLOWER
    assert confidence.more_steps(found, 0.03, 300) == 0


def test_the_other_way_round_it_is_faster() -> None:
    """A and B exchanged."""
    assert confidence.judge(compared(steps(middle=12.0, seed=1), steps(seed=2)), 0.03) == confidence.FASTER


def test_the_same_program_twice_is_the_same() -> None:
    """An interval inside the margin says so."""
    assert confidence.judge(compared(steps(seed=1), steps(seed=2)), 0.03) == confidence.SAME


def test_few_noisy_steps_decide_nothing_and_ask_for_more() -> None:
    """A wide interval is inconclusive, with the number of steps that would settle it."""
    found = compared(steps(20, scatter=0.3, seed=1), steps(20, middle=11.0, scatter=0.3, seed=2))
    assert confidence.judge(found, 0.03) == confidence.INCONCLUSIVE
    more = confidence.more_steps(found, 0.03, 20)
    assert more is not None
    assert more > 20


def test_a_ratio_on_the_margin_is_never_settled() -> None:
    """No number of steps tells 3 % from 3 %."""
    assert confidence.more_steps(confidence.Interval(1.03, 0.9, 1.2), 0.03, 100) is None


def test_the_same_steps_give_the_same_interval() -> None:
    """The random numbers have a fixed seed."""
    assert compared(steps(seed=1), steps(seed=2)) == compared(steps(seed=1), steps(seed=2))


def test_stalls_move_the_mean_and_not_the_low_quantile() -> None:
    """Every 20th step takes 10 times as long."""
    stalled = steps(seed=2)
    stalled[::20] *= 10
    assert confidence.judge(compared(steps(seed=1), stalled, "mean"), 0.03) == confidence.SLOWER
    assert confidence.judge(compared(steps(seed=1), stalled, "p10"), 0.03) == confidence.SAME


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of 200 comparisons of a program with itself, few intervals leave 1 out, though neighbouring steps are alike."""
    random = np.random.default_rng(7)
    missed = 0
    for _ in range(200):
        pair = []
        for _ in range(2):
            mood = np.repeat(random.normal(0, 0.05, 60), 5)  # the machine is slow for five steps on end
            pair.append(10 * MS * np.exp(mood + random.normal(0, 0.02, 300)))
        found = compared(pair[0], pair[1])
        missed += not found.low <= 1 <= found.high
    assert missed <= 30


def test_a_difference_has_an_interval_too() -> None:
    """Phases differ by so many ns."""
    found = confidence.change(blocks_of(steps(seed=1)), blocks_of(steps(middle=12.0, seed=2)))
    assert found is not None
    assert found.low <= 2 * MS <= found.high
    assert found.low > MS


def test_nothing_has_no_ratio() -> None:
    """Without steps, or with none that took time."""
    nothing = blocks_of([])
    assert confidence.ratio(nothing, blocks_of([1.0] * 20)) is None
    assert confidence.ratio(blocks_of([0.0] * 20), blocks_of([1.0] * 20)) is None
    assert confidence.change(nothing, nothing) is None


def test_one_block_is_no_evidence() -> None:
    """A single step says nothing about how much steps scatter."""
    found = confidence.ratio(blocks_of([1.0]), blocks_of([2.0]))
    assert found is not None
    assert (found.low, found.high) == (0.0, math.inf)
    assert confidence.judge(found, 0.03) == confidence.INCONCLUSIVE


def test_drift_is_noticed() -> None:
    """A run that gets slower all along has drifted; a steady one has not."""
    assert confidence.drift(steps()) is None
    grown = confidence.drift(steps() * np.linspace(1, 1.5, 300))
    assert grown is not None
    assert 1.3 < grown < 1.5
    assert confidence.drift(steps(15)) is None


def test_warm_up_is_found() -> None:
    """The first steps are slow, then it is steady."""
    begun = steps()
    begun[:25] *= 2
    assert confidence.warmup(begun) == 30
    assert confidence.warmup(steps()) == 0


def test_a_run_that_only_gets_faster_is_all_warm_up() -> None:
    """It never gets steady."""
    assert confidence.warmup(steps(scatter=0.01) * np.linspace(4, 1, 300)) == 300
