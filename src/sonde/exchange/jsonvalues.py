"""Values as JSON that every reader accepts: no NaN, no numbers beyond 2**53, no broken text."""

from __future__ import annotations

import functools
import json
import math

EXACT = 2**53  # beyond it a reader that keeps numbers as float64 would change them
DEEPEST = 32

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def text(value: object) -> str:
    """One value as ASCII JSON. It must be made of what `json.loads` gives."""
    return _encode(value)


def encoded(value: object) -> bytes:
    """Any value as ASCII JSON."""
    try:
        return text(value).encode()
    except (ValueError, RecursionError):
        return text(plain(value)).encode()


@functools.lru_cache(maxsize=4096)
def word(name: str) -> str:
    """A name as JSON; there are few of them, and each comes often."""
    return _encode(name)


def arguments(encoded: str | None) -> dict[str, object]:
    """The arguments of an event. What a damaged file holds instead of an object is kept as the text it is."""
    if not encoded:
        return {}
    try:
        found = json.loads(encoded)
    except (ValueError, RecursionError):
        return {"args": encoded}
    return {key: plain(value) for key, value in found.items()} if isinstance(found, dict) else {"args": plain(found)}


def plain(value: object, levels: int = DEEPEST) -> object:
    """The same value, with what JSON readers stumble over turned into text. What is nested deeper than so many levels is left out."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else _digits(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else nonfinite(value)
    if levels == 0:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain(one, levels - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, levels - 1) for one in value]
    return str(value)


def nonfinite(value: float) -> str:
    """NaN, Infinity or -Infinity."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digits(value: int) -> str:
    # int -> str is refused by Python beyond 4,300 digits.
    return str(value) if value.bit_length() < 14_000 else hex(value)
