"""The C part that looks at slots tells what NumPy tells, whatever stands in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.store.slots import by_numpy, slots

from sonde import native
from sonde.store.reading.segment import Slice, cut
from sonde.store.reading.sequence import sequence_of

pytestmark = pytest.mark.skipif(native.slots is None, reason="the C part was not built")
QUICK = settings(max_examples=80, deadline=None)


def plain(one: Slice) -> list[list[int]]:
    """What a slice tells of its slots."""
    return [one.seqs.tolist(), one.what.tolist(), one.threads.tolist(), one.kinds.tolist(), [one.bad]]


@QUICK
@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(0, 3), st.integers(0, 40))
def test_slots_are_cut_alike(seed: int, count: int, thread: int, left: int) -> None:
    """What each slot is, whose it is, and what is to come of the last block."""
    given = slots(seed, count)
    one, *state = cut(given, thread, left)
    with by_numpy():
        other, *again = cut(given, thread, left)
    assert (plain(one), state) == (plain(other), again)


@QUICK
@given(st.integers(0, 2**32), st.integers(0, 200), st.none() | st.integers(1, 300))
def test_numbers_are_marked_alike(seed: int, count: int, limit: int | None) -> None:
    """Which records count, which numbers stand twice, and how many are missing."""
    given = slots(seed, count)

    def slices() -> Iterator[Slice]:
        thread, left = 1, 50
        for low in range(0, count, 64):
            one, thread, left = cut(given[low : low + 64], thread, left)
            yield one

    def told() -> list[object]:
        limits = None if limit is None else (limit, limit + 3)
        found = sequence_of(slices, count, limits, [])
        numbers = [found.kept, found.missing, found.corrupt, found.end]
        return [*numbers, found.doubtful(given["seq"].copy()).tolist()]

    first = told()
    with by_numpy():
        assert told() == first


def test_memory_that_does_not_fit_is_refused() -> None:
    """A column of another length is an error, and nothing is written beyond its end."""
    one = slots(1, 10)
    eight, four = np.zeros(10, np.uint8), np.zeros(10, np.uint32)
    with pytest.raises(ValueError, match="differ in length"):
        native.slots.cut(one, eight, four[:9], eight, four, 0, 0)
    with pytest.raises(ValueError, match="differ in length"):
        native.slots.mark(four, eight[:9], eight, four, four)
    with pytest.raises(ValueError, match="unknown slot"):
        native.slots.gather(one, np.array([10]), np.zeros(1, np.int64), 0, 8)
    with pytest.raises(ValueError, match="unknown field"):
        native.slots.gather(one, np.array([1]), np.zeros(1, np.int64), 44, 8)


def test_piles_that_do_not_fit_are_refused() -> None:
    """A pile that there is no room for is an error."""
    one, eight = slots(1, 10), np.zeros(10, np.uint8)
    piles = np.full((2, 256, 16), 2, np.uint8)
    with pytest.raises(ValueError, match="too many groups"):
        native.slots.sort(one, eight, eight, eight, eight, piles, eight.copy(), np.zeros((2, 10), np.int64), 255)
