"""Fills fields of protobuf messages that OTLP and Perfetto have in common."""

from __future__ import annotations

from typing import Any

INT64 = 2**63


def text(value: str) -> str:
    """Without what UTF-8 cannot hold."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def put_scalar(into: Any, value: object) -> None:
    """Put a value that is neither a dict nor a list into the field of its type; what has no field goes as text."""
    if isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int) and -INT64 <= value < INT64:
        into.int_value = value
    elif isinstance(value, float):
        into.double_value = value
    else:
        into.string_value = text("null" if value is None else str(value))
