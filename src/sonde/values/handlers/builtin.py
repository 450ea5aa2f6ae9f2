"""Describes Python's own single values: None, numbers, texts, and any object known only by its text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sonde.values import digest as digests
from sonde.values.note import MISSING, NONE, SCALAR, TEXT, Note
from sonde.values.walk import NOT_KEPT, TEXT as SHOWN, Frozen, shorten, type_name

if TYPE_CHECKING:
    from sonde.values.walk import Walk

MAX_BITS = 4096  # of an integer that is shown; Python refuses to print very long ones

# Known by their text, and never changed: their copy is the object itself.
IMMUTABLE = frozenset(
    (module, name)
    for module, names in {
        "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
        "decimal": ("Decimal",),
        "fractions": ("Fraction",),
        "pathlib": ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"),
        "uuid": ("UUID",),
    }.items()
    for name in names
)


def nothing(value: None, walk: Walk) -> Frozen:  # noqa: ARG001  every handler has these arguments
    """None."""
    return Frozen(Note(NONE, "NoneType", text="None", digest=digests.scalar(None)), None)


def integer(value: int, walk: Walk) -> Frozen:
    """An int of any size, also of a subclass."""
    name = type_name(value)
    if not walk.shows:
        return Frozen(Note(SCALAR, name, text=NOT_KEPT))
    plain = int.__index__(value)
    digest = digests.scalar(plain)
    kept = plain if walk.copies else MISSING
    if plain.bit_length() > MAX_BITS:
        return Frozen(Note(SCALAR, name, text=f"<int of {plain.bit_length()} bits>", digest=digest), kept)
    return Frozen(Note(SCALAR, name, text=str(plain), value=plain, digest=digest), kept)


def boolean(value: bool, walk: Walk) -> Frozen:
    """True or False."""
    if not walk.shows:
        return Frozen(Note(SCALAR, "bool", text=NOT_KEPT))
    note = Note(SCALAR, "bool", text=repr(value), value=value, digest=digests.scalar(value))
    return Frozen(note, value if walk.copies else MISSING)


def number(value: float, walk: Walk) -> Frozen:
    """A float, also of a subclass."""
    name = type_name(value)
    if not walk.shows:
        return Frozen(Note(SCALAR, name, text=NOT_KEPT))
    plain = float.__float__(value)
    bad = 0 if math.isfinite(plain) else 1
    note = Note(SCALAR, name, text=repr(plain), value=plain, digest=digests.scalar(plain), nonfinite=bad)
    return Frozen(note, plain if walk.copies else MISSING)


def imaginary(value: complex, walk: Walk) -> Frozen:
    """A complex number."""
    name = type_name(value)
    if not walk.shows:
        return Frozen(Note(SCALAR, name, text=NOT_KEPT))
    plain = complex.__complex__(value)
    bad = 0 if math.isfinite(plain.real) and math.isfinite(plain.imag) else 1
    note = Note(SCALAR, name, text=repr(plain), digest=digests.of_text("complex", repr(plain)), nonfinite=bad)
    return Frozen(note, plain if walk.copies else MISSING)


def text(value: str, walk: Walk) -> Frozen:
    """A str, also of a subclass, whatever that overrides."""
    plain = str.__getitem__(value, slice(None))
    if not walk.shows:
        return Frozen(Note(TEXT, type_name(value), text=NOT_KEPT, length=len(plain)))
    return _text(plain, digests.of_text("str", plain), type_name(value), walk)


def raw(value: bytes | bytearray | memoryview, walk: Walk) -> Frozen:
    """Bytes, in any of Python's three types for them."""
    name = type_name(value)
    size = value.nbytes if isinstance(value, memoryview) else len(value)
    if not walk.shows:
        return Frozen(Note(TEXT, name, text=NOT_KEPT, length=size))
    plain = bytes(value) if type(value) is not bytes else value
    return _text(plain, digests.of_bytes("bytes", plain), name, walk)


def _text(plain: str | bytes, digest: int, name: str, walk: Walk) -> Frozen:
    kept, cut = _part(plain, len(plain), walk)
    shown = written(plain, digest, name, walk)
    return Frozen(Note(TEXT, name, text=shown, length=len(plain), digest=digest, cut=cut), kept)


def thing(value: object, walk: Walk) -> Frozen:
    """Any other object: its text; and itself if it is of a type that never changes."""
    note = walk.text(value).note
    kind = type(value)
    same = (str(kind.__module__).partition(".")[0], kind.__name__) in IMMUTABLE
    return Frozen(note, value if walk.copies and same else MISSING)


def steps(value: range, walk: Walk) -> Frozen:
    """A range: not a list of its numbers."""
    note = walk.text(value).note
    return Frozen(note._replace(length=_length(value)), value if walk.copies else MISSING)


def _length(value: range) -> int | None:
    count = (value.stop - value.start + value.step - (1 if value.step > 0 else -1)) // value.step
    return max(count, 0)  # len() refuses what does not fit a machine word


def _part(value: Any, size: int, walk: Walk) -> tuple[object, bool]:
    """What there is room for of a text, which needs no copy, and whether that is less than all of it."""
    if not walk.copies:
        return MISSING, False
    part = value if size <= walk.room else value[: max(walk.room, 0)]
    walk.room -= len(part)
    return part, len(part) < size


def written(value: str | bytes, digest: int | None, name: str, walk: Walk) -> str:
    """Between quotes, with what stands beyond the end counted behind them; where texts are not kept, length and digest."""
    if not walk.texts:
        return f"<{name} len={len(value)} hash={digest}>"
    if len(value) <= SHOWN:
        return repr(value)
    return f"{value[:SHOWN]!r}... ({len(value) - SHOWN} more)"


def words(value: object, shown: str) -> Frozen:
    """An object by the text that the user's own function made of it."""
    name = type_name(value)
    return Frozen(Note("object", name, text=shorten(shown), digest=digests.of_text(name, shown)))
