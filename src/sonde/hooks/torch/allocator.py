"""The statistics of a device's memory allocator: what reads them, and what resets their peaks.

The points lie below all functions of torch that do so (`torch.cuda.max_memory_allocated`, `torch.accelerator.memory_stats`,
...), so that it does not matter which of these the program has imported by name. The argument is the number of the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.hooks.points import Point

if TYPE_CHECKING:
    from types import ModuleType

    Place = tuple[Any, str]


def _reading(torch: ModuleType) -> list[Place]:
    return _there(torch, "_cuda_memoryStats", "_accelerator_getDeviceStats")


def _resetting(torch: ModuleType) -> list[Place]:
    return _there(torch, "_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


def _there(torch: ModuleType, *names: str) -> list[Place]:
    return [(torch._C, name) for name in names if hasattr(torch._C, name)]


device_stats = Point(
    "torch._C._cuda_memoryStats", "to leave the program its own peaks of memory", library="torch", find=_reading
)
peaks_reset = Point(
    "torch._C._cuda_resetPeakMemoryStats",
    "to see the program reset its peaks of memory",
    library="torch",
    find=_resetting,
)
