"""The newest and the highest value of every sampled metric of processes and of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

HOST = 0  # the key of what is about the host


class Gauge(NamedTuple):
    """A gauge: its newest value, when that was, and the highest one."""

    value: float
    time_ns: int
    peak: float


class Gauges:
    """Takes the counters of the categories memory and system."""

    def __init__(self) -> None:
        self._readings: dict[tuple[int, str], Gauge] = {}

    def add(self, pid: int, counters: NDArray[np.void], names: Mapping[int, tuple[str, str]]) -> None:
        """Take the counters of one process; what has no key is about itself."""
        values = np.ascontiguousarray(counters["dur"]).view(np.float64)
        for id, key, time_ns, value in zip(
            counters["name"].tolist(),
            counters["key"].tolist(),
            counters["start"].tolist(),
            values.tolist(),
            strict=True,
        ):
            place = (pid if key == record.NO_KEY else key, names[id][1])
            before = self._readings.get(place)
            if before is None:
                self._readings[place] = Gauge(value, time_ns, value)
            else:
                newest = Gauge(value, time_ns, value) if time_ns >= before.time_ns else before
                self._readings[place] = newest._replace(peak=max(before.peak, value))

    def get(self, pid: int | None, name: str) -> Gauge | None:
        """The gauge of a process, or of the host (`HOST`)."""
        return None if pid is None else self._readings.get((pid, name))
