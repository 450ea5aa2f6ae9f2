"""The slowest items of a run that grows."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonde.analysis.live.items import LISTED, Slowest
from sonde.store.record import NO_KEY


def items(*took: tuple[int, int]) -> Any:
    """Records of items: which one, and how long it took."""
    rows = [(key, dur, 0, 0) for key, dur in took]
    return np.array(rows, dtype=[("key", "i8"), ("dur", "i8"), ("parent", "i8"), ("seq", "i8")])


def test_an_item_that_is_slow_in_every_epoch_stands_there_once() -> None:
    """With its median time, and with place for the others."""
    slowest = Slowest()
    for epoch in range(2 * LISTED + 1):
        slowest.add("p", items((77, 1000 + epoch), (5, 40), (6, 30), (NO_KEY, 2), (NO_KEY, 2)), items())
    assert [(one.item, one.ns) for one in slowest.slowest[:3]] == [(77, 1000 + LISTED), (5, 40), (6, 30)]
    assert len(slowest.slowest) == LISTED
    assert {one.item for one in slowest.slowest[3:]} == {None}


def test_one_slow_load_of_two_is_not_the_items_fault() -> None:
    """The faster one counts."""
    slowest = Slowest()
    slowest.add("p", items((1, 900), (2, 500), (1, 3), (2, 400)), items())
    assert [(one.item, one.ns) for one in slowest.slowest] == [(2, 400), (1, 3)]


def test_before_the_first_item_there_is_none() -> None:
    """Nothing is divided by."""
    assert (Slowest().slowest, Slowest().median_ns) == ([], None)
