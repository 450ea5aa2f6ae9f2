"""The C parts, in one extension. A part is None where C was not built: its twin, or a plain fallback in Python, does the work.

This is the only place that asks whether C was built.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.native import slots as slots

PARTS = (
    "checksum",
    "core",
    "fingerprints",
    "finite",
    "layers",
    "loader",
    "moments",
    "points",
    "sigterm",
    "slots",
    "stats",
    "traceable",
)
MISSING: str | None = None  # why there is no C; None: there is
MAIN = True  # False: a subinterpreter. The parts belong to the main one: put into `sys.modules` here, they would be cleared with it

_extension = None
try:
    import sonde.native._sonde as _extension  # type: ignore[import-not-found,no-redef]  # each part has a stub
except ModuleNotFoundError:
    MISSING = "the C core was not built when Sonde was installed"
except ImportError as _error:
    MISSING = f"the C core could not be loaded ({_error})"

if _extension is not None and not _extension.core.is_main():
    _extension, MAIN, MISSING = None, False, "this is a subinterpreter"

for _name in PARTS:
    _part = globals()[_name] = getattr(_extension, _name, None)
    if _part is not None:
        sys.modules[f"{__name__}.{_name}"] = _part  # a span is pickled by the name of its module
