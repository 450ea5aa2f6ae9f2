"""Times of trace files: exact to the nanosecond, in whatever form they are written."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from sonde.exchange.imports import times

NUMBERS = st.one_of(
    st.integers(0, 10**16).map(str),
    st.decimals(0, 10**16, places=3).map(str),
    st.floats(0, 2**41).map(repr),
    st.sampled_from(["null", '"12.5"', "-3", "1e9", "true", "[1]", '"x"', "99999999999999999999999", "1e400"]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=9) | st.lists(st.decimals(0, 10**15, places=3).map(str), min_size=1))
@settings(max_examples=100, deadline=None)
def test_many_times_are_those_that_are_read_one_by_one(texts: list[str]) -> None:
    """How many come together makes no difference of more than rounding."""
    raws = [msgspec.Raw(text.encode()) for text in texts]
    found = times.many(raws).tolist()
    assert all(abs(one - times.one(raw)) <= 1 for one, raw in zip(found, raws, strict=True))


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1712195495505543.257", 1_712_195_495_505_543_257),
        ("1712195495505543", 1_712_195_495_505_543_000),
        ("0.25", 250),
        ("12", 12_000),
        ('"12"', 12_000),
        ("1.5e3", 1_500_000),
        ("-1", times.BAD),
        ("null", times.BAD),
        ("1e300", times.BAD),
    ],
)
def test_a_time_keeps_its_nanoseconds(text: str, ns: int) -> None:
    """Also one that a float64 could not hold."""
    assert times.one(msgspec.Raw(text.encode())) == ns
    assert times.many([msgspec.Raw(text.encode())] * 3).tolist() == [ns] * 3


def test_the_unit_of_the_file_counts() -> None:
    """DFTracer can write nanoseconds, milliseconds or seconds."""
    assert times.many([msgspec.Raw(b"1795001863484109000")], 1).tolist() == [1_795_001_863_484_109_000]
    assert times.many([msgspec.Raw(b"1795001864.5")], 10**9).tolist() == [1_795_001_864_500_000_000]
