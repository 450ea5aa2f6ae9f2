"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sonde import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "n/a"),
        (0, "0 ns"),
        (831, "831 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_345, "12.3 µs"),
        (999_999, "1.00 ms"),
        (123_456_789, "123 ms"),
        (41_300_000_000, "41.3 s"),
        (104_000_000_000, "104 s"),
        (123_000_000_000, "2 min 03 s"),
        (3_600_000_000_000, "60 min 00 s"),
        (7_320_000_000_000, "2 h 02 min"),
        (200 * 3_600_000_000_000, "8 d 08 h"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: int | None, text: str) -> None:
    """A duration is told in the largest unit in which it is at least one."""
    assert units.duration(ns) == text


@given(st.integers(-(2**70), 2**70))
def test_every_duration_is_short(ns: int) -> None:
    """No duration of a real or damaged record breaks a table."""
    assert len(units.duration(ns)) <= 24


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "n/a"), (0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (4_096, "4.10 kB"), (1_250_000_000, "1.25 GB")],
)
def test_sizes_go_by_thousands(count: int | None, text: str) -> None:
    """Sizes are told in powers of 1000."""
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("number", "text"), [(None, "n/a"), (0, "0"), (9_999, "9,999"), (999_999, "999,999"), (1_250_000, "1.25 M")]
)
def test_counts_are_exact_below_a_million(number: int | None, text: str) -> None:
    """Counts have separators, and a unit from a million on."""
    assert units.count(number) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (None, "n/a"),
        (0.0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.294, "29 %"),
        (0.0412, "4.1 %"),
        (1.5, "150 %"),
        (12.0, "1,200 %"),
    ],
)
def test_a_small_share_is_not_shown_as_nothing(part: float | None, text: str) -> None:
    """What is there but rounds to zero is told as less than a tenth of a percent."""
    assert units.share(part) == text


@pytest.mark.parametrize("wall", [2**62, -(2**62), 2**80])
def test_impossible_times_are_shown_as_missing(wall: int) -> None:
    """A damaged file can hold any number as a time."""
    assert isinstance(units.when(wall), str)


def test_plural_takes_the_right_form() -> None:
    """One process, two processes."""
    assert [units.plural(n, "process", "processes") for n in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]


@pytest.mark.parametrize(
    ("per_s", "text"), [(None, "n/a"), (0.01234, "0.0123"), (18.31, "18.3"), (99.96, "100"), (1239.6, "1,240")]
)
def test_rates_have_three_digits(per_s: float | None, text: str) -> None:
    """From 100 on they are whole."""
    assert units.rate(per_s) == text
