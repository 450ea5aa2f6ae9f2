"""Numbers for objects that stay valid after the object is gone: an id() comes back for the next object, these never do."""

from __future__ import annotations

import itertools
import os
import weakref

_numbers = itertools.count(1)
_known: dict[int, tuple[weakref.ref[object], int]] = {}
if hasattr(os, "register_at_fork"):
    # The child's objects are copies: a trace there must not take them for those of its parent.
    os.register_at_fork(after_in_child=_known.clear)


def forget() -> None:
    """Let go of all objects: some functions of torch refuse a tensor to which there are weak references."""
    _known.clear()


def number(value: object) -> int | None:
    """The number of this object, the same as long as it lives; None if it cannot be told when it goes."""
    key = id(value)
    found = _known.get(key)
    if found is not None and found[0]() is value:
        return found[1]
    given = next(_numbers)

    def gone(_: object) -> None:
        known = _known.get(key)
        if known is not None and known[1] == given:
            del _known[key]

    try:
        _known[key] = (weakref.ref(value, gone), given)
    except TypeError:  # a type without weak references
        return None
    return given
