"""Converts names, keys, values and arguments from users into plain values: never raises."""

from __future__ import annotations

from operator import index as whole_number

from sonde.guard import guard
from sonde.store.record import MAX_NAME_CHARS, NO_KEY


def as_text(value: object) -> str:
    """A name as a plain, bounded text."""
    if type(value) is str:
        return value if len(value) <= MAX_NAME_CHARS else value[:MAX_NAME_CHARS]
    with guard("turning a name into text"):
        return str.__getitem__(str(value), slice(0, MAX_NAME_CHARS))
    return f"<unprintable {type(value).__name__}>"


def as_dict(args: object) -> dict[str, object]:
    """The arguments of an event; what is no mapping becomes one argument."""
    with guard("reading the arguments of an event"):
        return dict(args)  # type: ignore[call-overload, no-any-return]
    return {"args": args}


def as_key(key: object) -> int | None:
    """The key as it stands in a record, NO_KEY without one, None if it does not fit."""
    if key is None:
        return NO_KEY
    number = as_whole(key)
    return number if number is not None and NO_KEY < number < 2**63 else None


@guard("reading a whole number", default=None)
def as_whole(value: object) -> int | None:
    """A whole number, None if it is none."""
    return whole_number(value) if hasattr(type(value), "__index__") else None  # type: ignore[arg-type]


@guard("reading the value of a counter", default=None)
def as_number(value: object) -> float | None:
    """A float, None if it is none; a text is none, although float() would read it."""
    return float(value) if hasattr(type(value), "__float__") or hasattr(type(value), "__index__") else None  # type: ignore[arg-type]


def as_context(value: object, unset: int, current: int) -> int:
    """A step or epoch as it stands in a record: None leaves the current one, what is out of range unsets it."""
    if value is None:
        return current
    number = as_whole(value)
    return number if number is not None and 0 <= number < unset else unset
