"""The probe of non-finite values: puts `flow.nonfinite` in place, if the setting `watch_nonfinite` asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

WATCH = "sonde.nonfinite.watch"  # not loaded unless it is wanted: all of flow comes with it


def install(settings: Settings) -> Callable[[], None]:
    """Watch all models of the program, until the returned function is called; none, if that is not wanted."""
    if settings.watch_nonfinite == "off":
        return _nothing
    leave: Callable[[], None] = import_module(WATCH).watch_nonfinite(action=settings.watch_nonfinite).close
    return leave


def _nothing() -> None:
    pass
