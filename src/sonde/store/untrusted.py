"""Reads fields of untrusted JSON: of the right type, within bounds, or not at all."""

from __future__ import annotations

import math
from typing import Any

MOST_TEXT = 500  # characters of a text, unless it is said otherwise
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Fields:
    """The fields of a JSON object. What is missing, of another type or out of bounds is None, or an empty list."""

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        self._values: dict[str, Any] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def text(self, name: str, most: int = MOST_TEXT) -> str | None:
        """A text that is not empty, cut to `most` characters."""
        return _text(self._values.get(name), most) or None

    def whole(self, name: str) -> int | None:
        """A whole number of 64 bits."""
        return _whole(self._values.get(name))

    def count(self, name: str) -> int | None:
        """A whole number that is not negative."""
        value = _whole(self._values.get(name))
        return None if value is None or value < 0 else value

    def digest(self, name: str) -> int | None:
        """64 bits, with or without a sign."""
        value = self._values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64 else None

    def number(self, name: str) -> float | None:
        """A number; those that JSON does not have are written as texts."""
        value = self._values.get(name)
        if isinstance(value, str):
            return _SPECIAL.get(value)
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) and _small(value) else None
        )

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self._values.get(name)
        return value if isinstance(value, bool) else None

    def word(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of the allowed words."""
        value = self._values.get(name)
        return value if isinstance(value, str) and value in allowed else None

    def inside(self, name: str) -> Fields:
        """The fields of an object in this one."""
        return Fields(self._values.get(name))

    def plain(self) -> dict[str, Any]:
        """All of it, as it was read."""
        return self._values

    def several(self, name: str, most: int) -> list[object]:
        """The first `most` of a list, whatever they are."""
        value = self._values.get(name)
        return value[:most] if isinstance(value, list) else []

    def length(self, name: str) -> int:
        """How long a list is."""
        value = self._values.get(name)
        return len(value) if isinstance(value, list) else 0

    def objects(self, name: str, most: int) -> list[Fields]:
        """The objects among the first `most` of a list."""
        return [Fields(one) for one in self.several(name, most) if isinstance(one, dict)]

    def texts(self, name: str, most: int, longest: int = MOST_TEXT) -> list[str]:
        """The texts among the first `most` of a list."""
        return [text for one in self.several(name, most) if (text := _text(one, longest)) is not None]

    def wholes(self, name: str, most: int) -> list[int | None]:
        """The first `most` of a list of whole numbers; None in place of what is none."""
        return [_whole(one) for one in self.several(name, most)]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of an array."""
        if not isinstance(self._values.get(name), list):
            return None
        sides = tuple(side for side in self.wholes(name, 64) if side is not None and side >= 0)
        return sides if len(sides) == self.length(name) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _small(value: float) -> bool:
    return isinstance(value, float) or abs(value) < 2**1023


def _text(value: object, most: int) -> str | None:
    """The text, such that it can be written as UTF-8."""
    if not isinstance(value, str):
        return None
    cut = value if len(value) <= most else value[:most] + "..."
    return cut.encode("utf-8", "backslashreplace").decode()
