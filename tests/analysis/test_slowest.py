"""The slowest items of a run that grows."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonde.analysis.slowest import KEPT, Slowest
from sonde.store.record import NO_KEY


def items(*took: tuple[int, int]) -> Any:
    """Records of items: which one, and how long it took."""
    rows = [(key, dur, 0, 0) for key, dur in took]
    return np.array(rows, dtype=[("key", "i8"), ("dur", "i8"), ("parent", "i8"), ("seq", "i8")])


def test_an_item_that_is_slow_in_every_epoch_stands_there_once() -> None:
    """With its slowest time, and with place for the others."""
    slowest = Slowest()
    for epoch in range(2 * KEPT):
        slowest.add("p", items((77, 1000 + epoch), (5, 40), (6, 30), (NO_KEY, 2), (NO_KEY, 2)), items())
    assert [(one.item, one.ns) for one in slowest.slowest[:3]] == [(77, 1000 + 2 * KEPT - 1), (5, 40), (6, 30)]
    assert len(slowest.slowest) == KEPT
    assert {one.item for one in slowest.slowest[3:]} == {None}
