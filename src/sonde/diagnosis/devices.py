"""The devices that a run used while it trained: load, throttling, and memory. Not verified on a device.

NVML says it of all devices of a host, whoever uses them. Only hosts count on which this run has memory on a device; and devices that did
something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import Asker, Figure, Figures
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

LOAD = "gpu.load"
# Of NVML's reasons: slowed down by the hardware, by software because it is hot, by hardware because it is hot, by the power brake.
HELD_BACK = 0x8 | 0x20 | 0x40 | 0x80
_DEVICE = {
    "samples": f"count(*) FILTER (name = '{LOAD}')",
    "load": f"median(value) FILTER (name = '{LOAD}')",
    "most": f"max(value) FILTER (name = '{LOAD}')",
    "throttled": f"avg((value::BIGINT & {HELD_BACK} <> 0)::INTEGER) FILTER (name = '{probe.GPU_THROTTLED}')",
    "temperature": "max(value) FILTER (name = 'gpu.temperature')",
}
_MEMORY = {
    "reserved": "max(value) FILTER (name = 'device.reserved')",
    "peak": "max(value) FILTER (name = 'device.peak')",
}


@dataclass(frozen=True)
class UsedDevice:
    """One device of a host."""

    host: str
    number: int
    figures: Figures

    @property
    def name(self) -> str:
        """`device 0 of node-1`."""
        return f"device {self.number} of {self.host}"


@dataclass(frozen=True)
class DeviceMemory:
    """What one process has on its device, in bytes."""

    host: str
    pid: int
    rank: int | None
    reserved: Figure
    peak: Figure  # of what its tensors held

    @property
    def unused(self) -> float:
        """What was reserved and never held."""
        return max(self.reserved.or_zero() - self.peak.or_zero(), 0.0) if self.peak.value is not None else 0.0


@dataclass(frozen=True)
class Devices:
    """All of them. `mine`: how many devices of a host are in use, where that is as many as processes of this run use."""

    used: list[UsedDevice] = field(default_factory=list)
    memory: list[DeviceMemory] = field(default_factory=list)

    def by_host(self) -> Iterator[list[UsedDevice]]:
        """The devices in use of each host on which nobody else seems to use one."""
        for host in dict.fromkeys(one.host for one in self.used):
            here = [one for one in self.used if one.host == host]
            if len(here) == sum(one.host == host for one in self.memory):
                yield here


def gather_devices(ask: Asker, trained: bool) -> Devices:
    """Ask about devices. `trained`: there are steps."""
    if not trained or not ask.seen(probe.MEMORY, ("device.reserved",)):
        return Devices()
    ((since, until),) = ask.rows(
        "SELECT min(start_ns), max(start_ns + dur_ns) FROM steps WHERE NOT warmup HAVING count(*) > 0"
    ) or [(None, None)]
    if since is None:
        return Devices()
    then = f"kind = 'counter' AND isfinite(value) AND start_ns >= {since}"
    ranks = {
        (host, pid): rank
        for host, pid, rank, role in ask.rows("SELECT host, pid, rank, role FROM processes")
        if role != "launcher"
    }
    memory = [
        DeviceMemory(
            str(row.which["host"]),
            int(row.which["about"]),
            ranks.get((row.which["host"], row.which["about"])),
            row["reserved"],
            row["peak"],
        )
        for row in ask.by(
            ["host", "about"],
            f"(SELECT host, coalesce(key, pid) AS about, name, value FROM events WHERE cat = '{probe.MEMORY}' AND {then})",
            _MEMORY,
        )
        if row["reserved"].or_zero() > 0
    ]
    hosts = {one.host for one in memory}
    rows = ask.by(
        ["host", "number"],
        f"(SELECT host, coalesce(key, 0) AS number, name, value FROM events WHERE cat = '{probe.SYSTEM}' AND starts_with(name, 'gpu.') "
        f"AND {then} AND start_ns <= {until})",
        _DEVICE,
    )
    used = [
        UsedDevice(str(row.which["host"]), int(row.which["number"]), row)
        for row in rows
        if row.which["host"] in hosts and row["most"].or_zero() > 0
    ]
    return Devices(used, memory)
