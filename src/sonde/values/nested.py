"""Takes a batch apart: its arrays and other values, each with its path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

MOST_PARTS = 64
MOST_DEPTH = 4
FIRST = 8  # elements that tell whether a list is taken apart

Parts = list[tuple[tuple[Any, ...], Any]]  # the way to each part (keys and places), and the part


def parts_of(data: Any, exclude: Container[str] = (), most: int = MOST_PARTS) -> Parts:
    """The arrays and other values in a batch, without fields whose names are excluded. They stay if the batch is emptied."""
    found: Parts = []
    collect(data, (), exclude, found, most)
    return found


def collect(data: Any, path: tuple[Any, ...], exclude: Container[str], found: Parts, most: int) -> bool:
    """Were all parts reached?"""
    pairs = None if len(path) >= MOST_DEPTH else _pairs(data)
    if pairs is None:
        found.append((path, data))
        return True
    complete = True
    for key, part in pairs:
        if key in exclude:
            continue
        if len(found) >= most:
            return False
        complete &= collect(part, (*path, key), exclude, found, most)
    return complete


def _pairs(data: Any) -> Iterable[tuple[Any, Any]] | None:
    """What lies in a container, by key or place; None: this is one part."""
    kind = type(data)
    if kind is tuple or kind is list:
        return enumerate(data) if any(map(_nests, data[:FIRST])) else None
    if isinstance(data, Mapping):
        return data.items()
    if isinstance(data, tuple) and hasattr(kind, "_fields"):
        return zip(kind._fields, data, strict=False)
    if hasattr(kind, "__dataclass_fields__"):
        fields = sys.modules["dataclasses"].fields(data)
        return ((field.name, getattr(data, field.name, None)) for field in fields)  # it may not be set
    return None


def _nests(part: Any) -> bool:
    """Is this an array or a container? A list without any, as of texts, is one part."""
    kind = type(part)  # that of a tensor has a shape, though a nested one itself has none
    return hasattr(kind, "shape") or hasattr(kind, "__dataclass_fields__") or isinstance(part, list | tuple | Mapping)
