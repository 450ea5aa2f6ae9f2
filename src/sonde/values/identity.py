"""Numbers for objects that stay unique after the object is gone: unlike id(), they are never reused."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

from sonde.weak import WeakTable

_known: WeakTable[int] = WeakTable()


class _IdentityNumbers:
    """Each process counts from a number of its own: no two objects of a trace have the same one."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a forked child the objects are copies: a trace there must not take them for those of its parent."""
        self.count = itertools.count(int.from_bytes(os.urandom(6), "big"))
        _known.clear()


_numbers = _IdentityNumbers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_numbers.renew)


def forget() -> None:
    """Let go of all objects: some functions of torch refuse a tensor to which there are weak references."""
    _known.clear()


def number(value: object) -> int | None:
    """The number of this object, the same as long as it lives; None if it cannot be known when it goes."""
    given = _known.get(value)
    if given is None and type(value).__weakrefoffset__:  # else a type without weak references
        given = _known[value] = next(_numbers.count)
    return given


def shared(array: object, others: Iterable[object]) -> bool:
    """Does this array use the memory of one of the others, as a view of it or as what it is a view of?"""
    start, end = _memory(array)
    return any(start < last and first < end for first, last in map(_memory, others))


def _memory(array: Any) -> tuple[int, int]:
    """Where the memory of a tensor or an array begins and ends; of a tensor, all that its views share."""
    if hasattr(array, "untyped_storage"):
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    start = array.__array_interface__["data"][0] if hasattr(array, "__array_interface__") else 0
    return start, start + array.nbytes if start else 0
