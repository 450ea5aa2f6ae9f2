"""The statistics of a device's memory allocator: what reads them, and what resets their peaks.

The points lie below all functions of torch that do so (`torch.cuda.max_memory_allocated`, `torch.accelerator.memory_stats`,
...), so that it does not matter which of these the program has imported by name. The argument is the number of the device.
"""

from __future__ import annotations

from sonde.hooks.points import Point
from sonde.hooks.torch import private

device_stats = Point(
    "torch memory statistics",
    "to keep the program's own peaks of memory intact",
    library="torch",
    find=private.stats_targets,
)
peaks_reset = Point(
    "torch memory peaks",
    "to see the program reset its peaks of memory",
    library="torch",
    find=private.reset_targets,
)
