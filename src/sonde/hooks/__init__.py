"""Patch points: one module per library that is patched, one undo stack, installed only after the program's own import."""

from __future__ import annotations

from sonde.hooks import finder, loops, patches

BLIND_SPOTS = (
    "uvloop imported before sonde.init(), trio, curio: tasks of one thread share its innermost span",
    "a bare `with` inside an undecorated generator: what its consumer does meanwhile may seem to lie inside",
    "python -I, -E or -S children, and children with a cleaned environment: they do not find the run",
)


def install() -> None:
    """Follow the libraries that matter, now or when the program imports them."""
    finder.when_imported(loops.MODULE, loops.watch)


def uninstall() -> None:
    """Undo everything."""
    finder.forget()
    patches.undo()


def describe() -> list[str]:
    """What is patched now, one text each."""
    return patches.describe()


__all__ = ["BLIND_SPOTS", "describe", "install", "uninstall"]
