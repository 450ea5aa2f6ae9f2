"""Samples cost at most 2 % of the time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sonde.probes.learning import interval


def intervals(every: int, cost: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How far sampled steps are apart, if each takes so many ns, and a step 1,000."""
    clock = [0]
    monkeypatch.setattr(interval, "monotonic_ns", lambda: clock[0])
    paced, spent, found = interval.Pace(every), 0, []
    for step in range(20_000):
        clock[0] += 1000
        if paced.due(step):
            found.append(step)
            spent += cost
            clock[0] += cost
            paced.sampled(spent)
    return [later - one for one, later in pairwise(found)]


def test_cheap_samples_are_taken_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6 % is allowed."""
    assert set(intervals(50, 800, monkeypatch)) == {50}


def test_dear_samples_are_taken_less_often_after_the_first_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval doubles until they cost 2 %."""
    found = intervals(50, 5000, monkeypatch)
    assert set(found[:20]) == {50}
    assert found[-1] == 400
    assert found == sorted(found)


def test_who_asks_for_nearly_every_step_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever that costs."""
    assert set(intervals(5, 5000, monkeypatch)) == {5}
