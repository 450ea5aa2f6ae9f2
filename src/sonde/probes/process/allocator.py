"""The most memory that the program held on a device in each step, as the allocator of torch counts it.

Its peak is read at the end of each step and reset, which costs no synchronisation. The program does not see that: what was reset is
kept here, and who asks for statistics gets the higher one of both; if the program resets the peaks itself, ours are forgotten.
That goes on after the end of a recording, until the program resets them. There was no device where this was written: it was
tried with a stand-in only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.guard import guard
from sonde.hooks.points import quiet
from sonde.hooks.torch import private
from sonde.hooks.torch.allocator import device_stats, peaks_reset
from sonde.probes.disable import probe_guard
from sonde.store.probe import DEVICE_PEAK, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Place = tuple[object, ...]

DOING = "sampling the memory of a device"
OFTEN = 64  # after so many looks it is asked again which devices are in use
PEAK = "peak"
HELD, RESERVED = ("allocated_bytes", "all"), ("reserved_bytes", "all")


class _Peaks:
    """Those that were reset here, by device and by their place in the statistics."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[Place, int]] = {}
        self.undo: list[Callable[[], None]] = []
        self.following = False
        self.forget()

    def forget(self) -> None:
        """Nothing is known of the devices in use."""
        self.looks = 0
        self.devices: list[int] = []


_peaks = _Peaks()


def follow() -> None:
    """Leave the program its own peaks, from now on."""
    _peaks.following = True
    _peaks.forget()
    if not _peaks.undo:
        _peaks.undo += [device_stats.replace(_read), peaks_reset.replace(_reset)]


def leave() -> None:
    """No step is looked at any more."""
    _peaks.following = False
    _let_go()


@probe_guard("allocator", DOING, leave)
def look(step: int | None) -> None:
    """This step has ended; None: one that is not recorded."""
    if not _peaks.following:
        return
    torch: Any = sys.modules["torch"]
    with quiet():
        if _peaks.looks % OFTEN == 0:
            _peaks.devices = [one for one in range(torch.cuda.device_count()) if _in_use(one)]
        _peaks.looks += 1
        for device in _peaks.devices:
            _take(device, step)


def highest(cuda: Any) -> int:
    """The peak of the current device as the program sees it."""
    kept = _peaks.kept.get(cuda.current_device(), {})
    return max(int(cuda.max_memory_allocated()), kept.get(HELD, 0))


def _in_use(device: int) -> bool:
    return any(leaf["current"] for place, leaf in _leaves(private.memory_stats(device)) if place == RESERVED)


def _take(device: int, step: int | None) -> None:
    kept = _peaks.kept.setdefault(device, {})
    for place, leaf in _leaves(private.memory_stats(device)):
        peak = leaf[PEAK]
        if peak > kept.get(place, 0):
            kept[place] = peak
        if place == HELD and peak and step is not None:  # an allocator that does not count says 0
            core.counter(DEVICE_PEAK, peak, PROBE, device, step=step)
    private.reset_peaks(device)


def _leaves(stats: dict[object, Any], above: Place = ()) -> Iterator[tuple[Place, dict[str, int]]]:
    """The statistics that have a peak, and their places."""
    for name, value in stats.items():
        if isinstance(value, dict):
            if PEAK in value:
                yield (*above, name), value
            else:
                yield from _leaves(value, (*above, name))


def _read(original: Callable[[int], dict[object, Any]], device: int) -> dict[object, Any]:
    stats = original(device)
    with guard("restoring the program's memory peaks"):
        kept = _peaks.kept.get(device, {})
        for place, leaf in _leaves(stats):
            leaf[PEAK] = max(leaf[PEAK], kept.get(place, 0))
    return stats


def _reset(original: Callable[[int], object], device: int) -> object:
    result = original(device)
    with guard("resetting the program's memory peaks"):
        _peaks.kept.pop(device, None)
        _let_go()
    return result


def _let_go() -> None:
    """Patch nothing any more, if there is nothing to be done."""
    if not _peaks.following and not _peaks.kept:
        while _peaks.undo:
            _peaks.undo.pop()()
