"""Replacing attributes of other people's modules: each one once, all undone in reverse order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Patch(NamedTuple):
    """One replaced attribute."""

    owner: Any
    name: str
    original: Any
    replacement: Any
    reason: str


_stack: list[Patch] = []


def replace(owner: Any, name: str, make: Callable[[Any], Any], reason: str) -> None:
    """Put `make(original)` in the place of `owner.name`; a second call for the same attribute does nothing."""
    if any(patch.owner is owner and patch.name == name for patch in _stack):
        return
    original = getattr(owner, name)
    replacement = make(original)
    setattr(owner, name, replacement)
    _stack.append(Patch(owner, name, original, replacement, reason))


def undo() -> None:
    """Put every original back, except where somebody else has replaced ours meanwhile: theirs may call ours."""
    while _stack:
        patch = _stack.pop()
        if getattr(patch.owner, patch.name, None) is patch.replacement:
            setattr(patch.owner, patch.name, patch.original)


def describe() -> list[str]:
    """What is replaced now, and what for."""
    return [f"{getattr(patch.owner, '__name__', patch.owner)}.{patch.name}: {patch.reason}" for patch in _stack]
