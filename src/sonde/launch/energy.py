"""The energy that the processors of this machine have used, where the kernel lets it be read (RAPL); often only root may read it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sonde.events import core
from sonde.store.probe import ENERGY, SYSTEM

ZONES = Path("/sys/class/powercap")


class Packages:
    """The processor packages; none where nothing can be read."""

    def __init__(self, zones: Path = ZONES) -> None:
        self._last: dict[Path, int] = {}  # microjoules, as they were read
        self._used: dict[Path, int] = {}  # since the first look
        with suppress(OSError):
            for zone in sorted(zones.glob("*-rapl:[0-9]*")):
                if zone.name.count(":") == 1:  # what lies in a package is part of it
                    self._begin(zone)

    def _begin(self, zone: Path) -> None:
        with suppress(OSError, ValueError):
            if (zone / "name").read_text().startswith("package"):
                self._last[zone], self._used[zone] = _number(zone / "energy_uj"), 0

    def sample(self) -> None:
        """Record the joules of each package since the first look; the key is its number."""
        for number, (zone, last) in enumerate(self._last.items()):
            with suppress(OSError, ValueError):
                now = _number(zone / "energy_uj")
                # The counter begins anew after its highest value.
                self._used[zone] += now - last if now >= last else now - last + _number(zone / "max_energy_range_uj")
                self._last[zone] = now
                core.counter(ENERGY, self._used[zone] / 1e6, SYSTEM, number)


def _number(file: Path) -> int:
    return int(file.read_text())
