"""A loader simulated, against times worked out by hand and against properties that every loader has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as some

from sonde.analysis.questions.whatif import STARTED, BatchTimes, Start, simulated

TIMES = BatchTimes(fetch=[40.0] * 60, handing=[0.0] * 60, computing=[10.0] * 60, rounds=[60], start=STARTED)


@pytest.mark.parametrize(
    ("workers", "lasts"),
    [
        (0, 60 * 50),
        (1, 60 * 40 + 10),  # the batch is computed with while the next one is made
        (2, 40 + 29 * 40 + 2 * 10),  # two batches every 40
        (4, 40 + 60 * 10),  # computing is what takes the time
        (8, 40 + 60 * 10),
    ],
)
def test_batches_of_40_beside_computing_of_10(workers: int, lasts: float) -> None:
    """Four workers make what one trainer needs."""
    assert simulated(TIMES, workers, 2) == lasts


def test_workers_that_start_again_cost_their_start_in_each_round() -> None:
    """Creating 2 workers of 100 each, 30 until they begin, and stopping them: in both rounds, or once."""
    times = replace(TIMES, rounds=[30, 30], start=Start(100.0, 30.0, 5.0, again=True))
    once = replace(times, start=replace(times.start, again=False))
    cost = 2 * 100 + 30 + 2 * 5
    assert simulated(times, 2, 2) == simulated(replace(times, start=STARTED), 2, 2) + 2 * cost
    assert simulated(once, 2, 2) == simulated(replace(times, start=STARTED), 2, 2) + cost


def test_one_slow_batch_is_hidden_by_batches_made_ahead() -> None:
    """Every tenth batch takes 100, computing 20: with two batches ahead training waits, with eight it does not."""
    fetch = [100.0 if place % 10 == 9 else 10.0 for place in range(100)]
    times = BatchTimes(fetch, [0.0] * 100, [20.0] * 100, [100], STARTED)
    assert simulated(times, 1, 8) == 10 + 100 * 20
    assert simulated(times, 1, 2) > 10 + 100 * 20 + 9 * 20


_LISTS = some.lists(some.tuples(*[some.floats(0, 100)] * 3), min_size=1, max_size=60)


@given(_LISTS, some.integers(1, 6), some.integers(1, 4))
def test_no_setting_is_faster_than_its_slowest_part(
    times: list[tuple[float, float, float]], workers: int, ahead: int
) -> None:
    """Computing and handing over are done one after the other, and each worker makes its batches one after the other."""
    fetch, handing, computing = map(list, zip(*times, strict=True))
    lasts = simulated(BatchTimes(fetch, handing, computing, [len(fetch)], STARTED), workers, ahead)
    assert lasts >= sum(computing) + sum(handing) - 1e-6
    assert lasts >= max(sum(fetch[one::workers]) for one in range(workers)) - 1e-6
    assert lasts <= sum(fetch) + sum(handing) + sum(computing) + 1e-6
