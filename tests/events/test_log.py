"""sonde.log(): numbers become counters, the rest marks."""

from __future__ import annotations

import decimal
import math

import pytest

import sonde
from sonde.events.log import as_number
from sonde.testing import record


def test_each_number_is_a_counter() -> None:
    """One call records one counter for each value, at the given step."""
    with record() as recorded:
        sonde.log(loss=0.5, accuracy=1, step=7)
    found = [(event["name"], event["kind"], event["value"], event["step"], event["cat"]) for event in recorded.events]
    assert found == [("loss", "counter", 0.5, 7, "log"), ("accuracy", "counter", 1.0, 7, "log")]


def test_other_values_are_marks() -> None:
    """A text is kept as an argument of a mark."""
    with record() as recorded:
        sonde.log(note="warm")
    (event,) = recorded.events
    assert (event["kind"], event["name"], event["args"]) == ("mark", "note", {"value": "warm"})


def test_a_value_that_fails_does_not_hurt_the_others() -> None:
    """A value whose conversion raises is left out; the program and the other values are not touched."""

    class Bad:
        @property
        def shape(self) -> tuple[int, ...]:
            raise RuntimeError("mine")

    with record() as recorded:
        sonde.log(bad=Bad(), good=1)
    assert recorded.names == ["good"]


def test_nothing_is_looked_at_while_nothing_is_recorded() -> None:
    """A tensor on a device is not waited for when nobody records."""

    class Slow:
        def __float__(self) -> float:
            raise AssertionError

    sonde.log(slow=Slow())


def test_arrays_of_one_element_are_numbers() -> None:
    """Scalars of numpy and torch count by their value, arrays do not."""
    np = pytest.importorskip("numpy")
    assert as_number(np.float32(0.5)) == 0.5
    assert as_number(np.array([[2]])) == 2.0
    assert as_number(np.zeros(3)) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (3, 3.0), (decimal.Decimal("0.5"), 0.5), ("3", None), (None, None), (1j, None), (10**400, None)],
)
def test_what_counts_as_a_number(value: object, number: float | None) -> None:
    """Everything that float() makes a number of, except text."""
    assert as_number(value) == number


def test_not_a_number_is_a_number() -> None:
    """A loss that became NaN is worth a record."""
    assert math.isnan(as_number(float("nan")) or 0.0)
