"""Describes values that hold others: lists, tuples, sets, mappings, dataclasses and named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.guard import guard
from sonde.values import digest as digests
from sonde.values.note import MAPPING, MISSING, SEQUENCE, TUPLE, Note
from sonde.values.walk import WIDTH, Frozen, clean, type_name

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sonde.values.walk import Children, Walk

_ORDERED = (int, float, str, bytes)  # sets of these are shown in order
_KEYS = (str, int, float, bool, bytes, type(None))  # keys that stay as they are in the copy


def items(value: list[Any] | deque[Any], walk: Walk) -> Frozen:
    """A list, or something that is like one."""
    parts, length = (
        (list.__iter__(value), list.__len__(value)) if isinstance(value, list) else (iter(value), len(value))
    )
    found = walk.children(_numbered(parts), value, named=False)
    note = _note(SEQUENCE, value, length, found, digests.combine, "list")
    return Frozen(note, found.values if walk.copies else MISSING)


def pair(value: tuple[Any, ...], walk: Walk) -> Frozen:
    """A tuple; a named one is shown by its names."""
    names = getattr(type(value), "_fields", None)
    if isinstance(names, tuple) and len(names) == tuple.__len__(value):
        return record(value, walk, [(str(name), part) for name, part in zip(names, tuple.__iter__(value), strict=True)])
    found = walk.children(_numbered(tuple.__iter__(value)), value, named=False)
    note = _note(TUPLE, value, tuple.__len__(value), found, digests.combine, "tuple")
    return Frozen(note, tuple(found.values) if walk.copies else MISSING)


def group(value: set[Any] | frozenset[Any], walk: Walk) -> Frozen:
    """A set: its parts in an order that is the same in every process."""
    parts = list(value)
    if parts and type(parts[0]) in _ORDERED and all(type(part) is type(parts[0]) for part in parts):
        parts.sort()
    elif walk.shows and len(parts) <= WIDTH:
        parts.sort(key=walk.digest)
    found = walk.children(_numbered(iter(parts)), value, named=False)
    note = _note(SEQUENCE, value, len(parts), found, digests.unordered, "set")
    return Frozen(note, _as_set(found.values) if walk.copies else MISSING)


def mapping(value: Mapping[Any, Any], walk: Walk) -> Frozen:
    """A dict, or something that is like one. The keys stay as they are, if they are plain."""
    pairs = list(dict.items(value)) if isinstance(value, dict) else [(key, value[key]) for key in value]
    names = [_name(key) for key, _ in pairs]
    found = walk.children(zip(names, (part for _, part in pairs), strict=True), value)
    if found.digests is not None:
        marks = [
            digests.scalar(key) or digests.of_text("key", name) for (key, _), name in zip(pairs, names, strict=True)
        ]
        found = found._replace(
            digests=[digests.combine("pair", both) for both in zip(marks, found.digests, strict=True)]
        )
    note = _note(MAPPING, value, len(pairs), found, digests.unordered, "dict")
    if not walk.copies:
        return Frozen(note)
    keys = [key if type(key) in _KEYS else name for (key, _), name in zip(pairs, names, strict=True)]
    return Frozen(note, dict(zip(keys, found.values, strict=False)))


def fields(value: object, walk: Walk) -> Frozen:
    """A dataclass or an attrs class: its fields."""
    declared = getattr(type(value), "__dataclass_fields__", None)
    names = list(declared) if declared is not None else [field.name for field in type(value).__attrs_attrs__]  # type: ignore[attr-defined]
    return record(value, walk, [(name, _field(value, name)) for name in names])


def record(value: object, walk: Walk, parts: list[tuple[str, object]]) -> Frozen:
    """Something with named parts in a fixed order."""
    found = walk.children(parts, value)
    note = _note(MAPPING, value, len(parts), found, digests.combine, type_name(value))
    kept = dict(zip((name for name, _ in parts), found.values, strict=False))
    return Frozen(note, kept if walk.copies else MISSING)


def has_fields(kind: type) -> bool:
    """Is it a dataclass or an attrs class?"""
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__")


def _note(
    kind: str, value: object, length: int, found: Children, digest: Callable[[str, Iterable[int]], int], word: str
) -> Note:
    known = None if found.digests is None else digest(word, found.digests)
    return Note(kind, type_name(value), length=length, digest=known, cut=found.cut, children=found.notes)


def _numbered(parts: Iterable[object]) -> Iterator[tuple[str, object]]:
    return ((str(number), part) for number, part in enumerate(parts))


def _as_set(values: list[object]) -> object:
    try:
        return set(values)
    except TypeError:  # what was a frozen dataclass is a dict in the copy
        return values


def _field(value: object, name: str) -> object:
    """A field may be declared and not set."""
    with guard("reading a field"):
        return getattr(value, name)
    return MISSING


def _name(key: object) -> str:
    if type(key) is str:
        return clean(key)
    with guard("turning a key into text"):
        return clean(repr(key))
    return f"<unprintable {type_name(key)}>"
