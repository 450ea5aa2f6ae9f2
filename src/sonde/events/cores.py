"""Picks the event core, once, when Sonde is imported: the C one if it is there, else its Python twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import config
from sonde.guard import warn

MAIN = True  # False: a subinterpreter, in which nothing is recorded, for the C core is that of the main one
CORE_NOTE: str | None = None  # why the Python twin records; None: the C core does

if TYPE_CHECKING:
    from sonde.native import core
else:
    core = None
    _wanted = config.peek("core")
    if _wanted == "python":
        CORE_NOTE = "the setting `core` (SONDE_CORE) is python"
    else:
        from sonde.native import MAIN, MISSING as CORE_NOTE, core

        if core is None and MAIN and _wanted == "c":
            warn(
                "The setting `core` is c, but %s. Using the slower Python core. Reinstall Sonde with a C compiler, "
                "or set SONDE_CORE=auto.",
                CORE_NOTE,
            )
    if core is None:
        from sonde.events import twin as core

__all__ = ["CORE_NOTE", "MAIN", "core"]
