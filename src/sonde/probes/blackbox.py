"""The black box as a probe: switched on by its setting, and off when the recording ends. `sonde.flow.blackbox` does the work."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

MODULE = "sonde.blackbox.box"  # loaded by those only who want it


def install(settings: Settings) -> Callable[[], None]:
    """Switch it on, if the settings say so. It may be switched on later too."""
    if settings.blackbox:
        import_module(MODULE).start(settings.blackbox)
    return _leave


def _leave() -> None:
    loaded: Any = sys.modules.get(MODULE)
    if loaded is not None:
        loaded.stop()
