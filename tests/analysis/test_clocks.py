"""The course of a clock, from bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sonde.analysis.clocks import apart, stretches

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SECOND = 1_000_000_000
MS = 1_000_000


def bounds(ahead: Callable[[int], int], seed: int = 0) -> tuple[Ints, Ints, Ints, Ints]:
    """The moments of collectives on one clock, and how far another one is ahead, which is `ahead(moment)`, at least and at most."""
    count, apart_ns, room_ns = 200, 7 * MS, 300_000
    random = np.random.default_rng(seed)
    times = 1_700_000_000 * SECOND + np.cumsum(random.integers(apart_ns // 2, apart_ns * 2, count))
    truth = np.array([ahead(int(time)) for time in times])
    low = truth - random.integers(0, 20 * room_ns, count)
    high = truth + random.integers(0, 20 * room_ns, count)
    return times, low, high, truth


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("offset", "drift"), [(0, 0.0), (250 * MS, 50e-6), (-3600 * SECOND, -200e-6)])
def test_the_error_covers_the_truth_at_every_collective(seed: int, offset: int, drift: float) -> None:
    """However wide the bounds are, and whatever the clock."""
    start = 1_700_000_000 * SECOND
    times, low, high, truth = bounds(lambda time: round(offset + drift * (time - start)), seed=seed)

    (found,) = stretches(times, low, high)

    for time, ahead in zip(times + truth, truth, strict=True):
        estimate = found.offset_ns + found.drift * (time - found.at_ns)
        assert abs(estimate - ahead) <= found.error_ns
    assert found.error_ns < 2 * MS
    assert found.collectives == 200


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_set_has_two_stretches(seed: int) -> None:
    """A jump in the middle is where one ends and the other begins."""
    middle = bounds(lambda time: 0, seed=seed)[0][100]
    times, low, high, truth = bounds(lambda time: 40 * MS if time >= middle else 0, seed=seed)

    before, after = stretches(times, low, high)

    assert abs(before.offset_ns) <= before.error_ns
    assert abs(after.offset_ns - 40 * MS) <= after.error_ns
    assert (times + truth)[99] <= after.from_ns <= (times + truth)[101] + 2 * MS
    assert after.from_ns > before.until_ns - 2 * MS


def test_bounds_that_are_no_clock_have_no_course() -> None:
    """Ranks that did not wait for each other."""
    random = np.random.default_rng(0)
    times = np.arange(200) * MS
    apart = random.integers(-5000 * SECOND, 5000 * SECOND, 200)
    assert stretches(times, apart, apart) == []


def test_a_wrong_bound_makes_the_error_larger() -> None:
    """One rank that came out 0.4 ms before the last went in, as asynchronous work may look."""
    times, low, high, _ = bounds(lambda time: 0)
    high[50] = low.max() - 400_000
    (found,) = stretches(times, low, high)
    assert abs(found.offset_ns) <= found.error_ns


def test_one_collective_is_enough_for_an_offset_without_drift() -> None:
    """Then the error is half of the room."""
    (found,) = stretches(np.array([5 * SECOND]), np.array([100]), np.array([300]))
    assert (found.offset_ns, found.drift, found.error_ns, found.collectives) == (200, 0.0, 100, 1)


def test_no_collectives_give_no_course() -> None:
    nothing = np.array([], np.int64)
    assert stretches(nothing, nothing, nothing) == []


def test_an_even_course_is_no_scatter() -> None:
    """Neither the offset nor the drift is."""
    times = np.arange(200) * 10 * MS
    assert apart(times, (7 * SECOND + 40e-6 * times).astype(np.int64)).max() < 10
    assert apart(times[:2], times[:2]).tolist() == [0, 0]
    jitter = np.random.default_rng(0).normal(0, MS, 200)
    assert MS < np.quantile(apart(times, jitter.astype(np.int64)), 0.95) < 4 * MS
