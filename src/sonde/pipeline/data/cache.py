"""Keeps values in memory once they were read, up to a number of bytes; then it keeps those and takes no more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

NOTHING = object()
AROUND = 200  # bytes that a kept value takes besides itself, about


class Cache:
    """What the fields of one provider share, in one process.

    It never throws out: an epoch visits each item once, so that whatever is thrown out is needed again before long.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def around(self, get: Callable[[int], Any]) -> Callable[[int], Any]:
        """The same getter, which is asked for a value only once if there is room for it."""
        kept: dict[int, Any] = {}

        def cached(row: int) -> Any:
            value = kept.get(row, NOTHING)
            if value is NOTHING:
                value = get(row)
                size = AROUND + (int(value.nbytes) if isinstance(value, np.ndarray) else sys.getsizeof(value))
                if self.used + size <= self.limit:
                    self.used += size
                    value = kept[row] = _own(value)
            return value

        return cached


def _own(value: Any) -> Any:
    """A copy that nobody can change: a dataset may use its array again, a function of the program may write into it."""
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
    return value
