"""The C parts, in one extension. A part is None where C was not built: its twin, or a plain fallback in Python, does the work.

This is the only place that asks whether C was built.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.native import slots as slots

PARTS = ("core", "fingerprint", "finite", "gate", "layers", "loader", "points", "sigterm", "slots", "stats")
MISSING: str | None = None  # why there is no C; None: there is

_extension = None
try:
    import sonde.native._sonde as _extension  # type: ignore[import-not-found,no-redef]  # each part has a stub
except ModuleNotFoundError:
    MISSING = "the C core was not built when Sonde was installed"
except ImportError as _error:
    MISSING = f"the C core could not be loaded ({_error})"

for _name in PARTS:
    _part = globals()[_name] = getattr(_extension, _name, None)
    if _part is not None:
        sys.modules[f"{__name__}.{_name}"] = _part  # a span is pickled by the name of its module
