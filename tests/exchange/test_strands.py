"""Strands: which spans of a thread can lie on one track."""

from __future__ import annotations

import pytest
from tests.exchange.spans import interleaved, nested

from sonde.exchange.strands import Strands
from sonde.testing import BuiltRecord


def placed(spans: list[BuiltRecord]) -> dict[int, int]:
    strands = Strands()
    return {
        one.seq: strands.place(one.seq, one.parent or None, one.start, one.start + one.dur)
        for one in sorted(spans, key=lambda one: (one.start, one.seq))
    }


@pytest.mark.parametrize("seed", range(20))
def test_properly_nested_spans_share_one_strand(seed: int) -> None:
    """An ordinary thread needs no second track."""
    assert set(placed(nested(60, seed)).values()) == {0}


@pytest.mark.parametrize("seed", range(20))
def test_on_one_strand_spans_nest(seed: int) -> None:
    """Two spans of a strand are apart, or one lies in the other."""
    spans = interleaved(5, 80, seed)
    where = placed(spans)
    for a in spans:
        for b in spans:
            if a.seq < b.seq and where[a.seq] == where[b.seq] and not (a.flags or b.flags):
                assert b.start >= a.start + a.dur or b.start + b.dur <= a.start + a.dur


def test_overlapping_tasks_get_strands_of_their_own() -> None:
    """Enter A, enter B, leave A, leave B: two strands."""
    assert placed([BuiltRecord(seq=1, start=0, dur=10), BuiltRecord(seq=2, start=5, dur=10)]) == {1: 0, 2: 1}


def test_a_child_lies_on_the_strand_of_its_parent() -> None:
    """A task's inner spans follow it."""
    spans = [
        BuiltRecord(seq=1, start=0, dur=10),
        BuiltRecord(seq=2, start=5, dur=10),
        BuiltRecord(seq=3, parent=2, start=6, dur=2),
        BuiltRecord(seq=4, parent=1, start=7, dur=2),
    ]
    assert placed(spans) == {1: 0, 2: 1, 3: 1, 4: 0}


def test_what_encloses_a_span_without_calling_it_is_no_parent() -> None:
    """The consumer of a generator runs while the generator lives, but not inside it."""
    assert placed([BuiltRecord(seq=1, start=0, dur=100), BuiltRecord(seq=2, start=10, dur=5)]) == {1: 0, 2: 1}


def test_a_free_strand_is_used_again() -> None:
    """A thousand tasks, one after the other, need one strand."""
    spans = [BuiltRecord(seq=n + 1, start=n * 10, dur=5) for n in range(1000)]
    assert set(placed(spans).values()) == {0}
