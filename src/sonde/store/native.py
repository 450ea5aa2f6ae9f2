"""The C part that looks at slots of recordings, or None where it was not built: NumPy does the same, in more passes."""

from __future__ import annotations

try:
    from sonde.native import slots
except ImportError:
    slots = None  # type: ignore[assignment]

__all__ = ["slots"]
