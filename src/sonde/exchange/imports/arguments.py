"""Special arguments of events in our own exports and in DFTracer's files: the step, the key, whether they are open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record

_NUMBERS = {int, type(None)}
_DROPPED = {"hhash", "p_idx", "level"}
_FLAGS = {"error": record.ERROR, "open": record.OPEN}


class Context(NamedTuple):
    """What was taken out of the arguments of each event; the key of an iteration is its count."""

    keys: list[int | None]
    steps: list[int | None]
    epochs: list[int | None]
    marks: list[bool]
    flags: list[int]


def take_context(args: Sequence[dict[str, Any]]) -> Context:
    """Take it out of these arguments."""
    there: set[str] = set().union(*args)  # most names are in none of them
    for name in there & _DROPPED:
        for one in args:
            one.pop(name, None)
    none: list[int | None] = [None] * len(args)
    keys, counts, steps, epochs = (
        _numbers(args, name) if name in there else none for name in ("key", "count", "step", "epoch")
    )
    if "count" in there:
        keys = [key if count is None else count for key, count in zip(keys, counts, strict=True)]
    flags = [0] * len(args)
    for name in there & _FLAGS.keys():
        flags = [
            flag | _FLAGS[name] * (one.pop(name) is True) if name in one else flag
            for flag, one in zip(flags, args, strict=True)
        ]
    marks = [one.pop("mark", None) is True for one in args] if "mark" in there else [False] * len(args)
    return Context(keys, steps, epochs, marks, flags)


def _numbers(args: Sequence[dict[str, Any]], name: str) -> list[int | None]:
    """The numbers of this name; what is none stays among the arguments."""
    found = [one.pop(name, None) for one in args]
    if set(map(type, found)) <= _NUMBERS:
        return found
    numbers = [whole_number(value) for value in found]
    for one, value, number in zip(args, found, numbers, strict=True):
        if number is None and value is not None:
            one[name] = value
    return numbers


def within(numbers: Iterable[int | None], limit: int, none: int) -> Any:
    """These numbers as an array; `none` for those that do not fit."""
    return np.array([none if one is None or one >= limit or one <= -limit else one for one in numbers])


def whole_number(value: object) -> int | None:
    """A whole number, or the digits of one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
