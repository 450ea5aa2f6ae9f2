"""The point at which torch.compile decides that a function must be compiled again, and why."""

from __future__ import annotations

from sonde.hooks.points import Point
from sonde.hooks.torch import private

recompiled = Point(
    "torch.compile, recompiling",
    "to learn which functions are compiled again, and why",
    library=private.CONVERTER,
    find=private.recompile_targets,
)
