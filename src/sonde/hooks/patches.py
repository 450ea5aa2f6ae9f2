"""Replaces attributes of foreign modules and classes: each once, and each is restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Patch(NamedTuple):
    """One replaced attribute."""

    owner: Any
    name: str
    original: Any  # what stood in the owner's own namespace; ABSENT if the attribute was inherited
    replacement: Any
    reason: str


ABSENT = object()
_stack: list[Patch] = []
_covered: list[Patch] = []  # ours, over which somebody else has put his own: they could not be taken away


def replace(owner: Any, name: str, make: Callable[[Any], Any], reason: str) -> Patch | None:
    """Put `make(original)` in the place of `owner.name`; a second call for the same attribute does nothing.

    Of a static method or a class method, `make` gets the function in it and gives a function.
    """
    if any(patch.owner is owner and patch.name == name for patch in _stack):
        return None
    _clear_away(owner, name)
    original = _own(owner, name)
    replacement = _made(owner, name, make)
    setattr(owner, name, replacement)
    patch = Patch(owner, name, original, replacement, reason)
    _stack.append(patch)
    return patch


def restore(patch: Patch) -> bool:
    """Put one original back; False if somebody else has replaced ours meanwhile: theirs may call ours, and stays."""
    if any(one is patch for one in _stack):
        _stack[:] = [one for one in _stack if one is not patch]
    if _own(patch.owner, patch.name) is patch.replacement:
        _put_back(patch)
        return True
    _covered.append(patch)
    return False


def undo() -> None:
    """Put every original back, the last one first."""
    while _stack:
        restore(_stack[-1])


def describe() -> list[str]:
    """What is replaced now, and what for."""
    return [f"{getattr(patch.owner, '__name__', patch.owner)}.{patch.name}: {patch.reason}" for patch in _stack]


def _own(owner: Any, name: str) -> Any:
    """What the owner itself has under this name, as it is stored; ABSENT if it inherits the attribute."""
    return getattr(owner, "__dict__", {}).get(name, ABSENT)


def _made(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    for place in getattr(owner, "__mro__", ()):
        stored = _own(place, name)
        if isinstance(stored, staticmethod | classmethod):
            return type(stored)(make(stored.__func__))
        if stored is not ABSENT:
            break
    return make(getattr(owner, name))


def _put_back(patch: Patch) -> None:
    if patch.original is ABSENT:
        delattr(patch.owner, patch.name)
    else:
        setattr(patch.owner, patch.name, patch.original)


def _clear_away(owner: Any, name: str) -> None:
    """Take ours away that were covered once, and are not any more."""
    for patch in reversed(_covered[:]):
        if patch.owner is owner and patch.name == name and _own(owner, name) is patch.replacement:
            _put_back(patch)
            _covered.remove(patch)
