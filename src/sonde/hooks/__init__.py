"""Patch points: one module per library that is patched, one undo stack, installed only after the program's own import."""

from __future__ import annotations

from sonde.hooks import loops, patches
from sonde.store.blindspots import BLIND_SPOTS


def install() -> None:
    """Follow the libraries that matter, now or when the program imports them."""
    loops.install()


def uninstall() -> None:
    """Undo what `install` did. Points (`hooks.points`) undo themselves when their last subscriber leaves."""
    loops.uninstall()


def describe() -> list[str]:
    """What is patched now, one text each."""
    return patches.describe()


__all__ = ["BLIND_SPOTS", "describe", "install", "uninstall"]
