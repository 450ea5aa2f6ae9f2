"""Notifies the core when an event loop runs in a thread: then each task has its own innermost span."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks import finder, patches

MODULE = "asyncio.events"

_undo: list[Callable[[], object]] = []


def install() -> None:
    """Follow event loops, now or when the program imports asyncio."""
    _undo.append(finder.when_imported(MODULE, watch))


def uninstall() -> None:
    """Follow them no more."""
    while _undo:
        _undo.pop()()


def watch(events: ModuleType) -> None:
    """Follow the loops of this module from now on, the one that runs already included (as in a notebook)."""
    patch = patches.replace(events, "_set_running_loop", _following, "to know which threads run an event loop")
    if patch is not None:
        _undo.append(lambda: patches.restore(patch))
    if events._get_running_loop() is not None:
        core.task_mode(True)


def _following(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def set_running_loop(loop: Any) -> None:
        original(loop)
        with guard("noting an event loop"):
            core.task_mode(loop is not None)

    return set_running_loop
