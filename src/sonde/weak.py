"""Values for objects, for as long as these live.

As `WeakKeyDictionary`, which runs Python code when an object goes: if a signal arrives in there, Python prints and drops what its
handler raises, Ctrl-C too. Here only C code runs then. Objects are distinguished by identity.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

_V = TypeVar("_V")


class WeakTable(Generic[_V]):
    """Values by object."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Any], _V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def get(self, key: object) -> _V | None:
        """The value of this object, if it has one."""
        found = self._entries.get(id(key))
        return None if found is None else found[1]

    def values(self) -> list[_V]:
        """The values of all of them."""
        return [value for _, value in list(self._entries.values())]

    def __setitem__(self, key: object, value: _V) -> None:
        address = id(key)
        gone = partial(self._entries.pop, address)  # is called with the reference, which pop() takes for the default
        self._entries[address] = (ref(key, gone), value)

    def pop(self, key: object) -> _V | None:
        """Its value, which it has no more."""
        found = self._entries.pop(id(key), None)
        return None if found is None else found[1]

    def clear(self) -> None:
        """No object has one any more."""
        self._entries.clear()
