"""Fields of protobuf messages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sonde.exchange.protobuf import put_scalar, text


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, {"bool_value": True}),
        (7, {"int_value": 7}),
        (2**63, {"string_value": str(2**63)}),
        (0.5, {"double_value": 0.5}),
        (None, {"string_value": "null"}),
        ("a", {"string_value": "a"}),
    ],
)
def test_each_value_goes_to_the_field_of_its_type(value: object, field: dict[str, object]) -> None:
    """A number that has no room goes as text."""
    into = SimpleNamespace()
    put_scalar(into, value)
    assert vars(into) == field


def test_what_utf8_cannot_hold_is_replaced() -> None:
    """Such as half of a surrogate pair."""
    assert text("a\udc80") == "a?"
