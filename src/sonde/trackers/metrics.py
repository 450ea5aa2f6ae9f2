"""The new steps of a running run as points for a tracker: total and phases in ms, memory in bytes, rank by rank."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import PHASES, RESIDUAL
from sonde.trackers.tracker import StepValues

if TYPE_CHECKING:
    from sonde.analysis.live.run import Live, LiveProcess
    from sonde.analysis.live.window import StepWindow

MOST = 100  # points of a rank at one look: of more steps, means
MOST_RANKS = 8
PARTS = (*PHASES, RESIDUAL)
MEMORY = {"rss": "rss_bytes", "device.allocated": "device_bytes"}


class StepPoints:
    """Takes what is new of a run. `skipped` counts steps that came too fast to be seen."""

    def __init__(self, live: Live) -> None:
        self.skipped = 0
        self._live = live
        self._last: dict[str, int] = {}  # by process: the end of the last step that was taken
        self._seen: dict[str, int] = {}  # by process: how many steps that were

    def look(self) -> list[StepValues]:
        """The points that are new, those of each rank in the order of time."""
        self._live.look()
        trainers = self._live.trainers[:MOST_RANKS]
        found: list[StepValues] = []
        for one in trainers:
            found += self._of(one, "" if len(trainers) == 1 else f"rank {one.info.rank}/")
        self.skipped = sum(
            max(one.window.count - one.window.aborted - self._seen.get(one.tail.folder.name, 0), 0) for one in trainers
        )
        return found

    def _of(self, one: LiveProcess, prefix: str) -> list[StepValues]:
        steps = one.window.steps()
        known = self._last.get(one.tail.folder.name)
        first = 0 if known is None else int(steps.end.searchsorted(known, side="right"))
        steps = steps.after(first)
        count = len(steps.step)
        if not count or one.info.start is None:
            return []
        self._last[one.tail.folder.name] = int(steps.end[-1])
        self._seen[one.tail.folder.name] = self._seen.get(one.tail.folder.name, 0) + count
        to_wall = one.info.start.wall_ns - one.info.start.mono_ns
        cuts = [count * place // min(count, MOST) for place in range(min(count, MOST) + 1)]
        points = [_point(steps, begin, end, to_wall, prefix) for begin, end in pairwise(cuts)]
        memory = self._memory(one, prefix)
        return [*points[:-1], points[-1]._replace(values={**points[-1].values, **memory})]

    def _memory(self, one: LiveProcess, prefix: str) -> dict[str, float]:
        found = {what: self._live.gauges.get(one.info.pid, gauge) for gauge, what in MEMORY.items()}
        return {f"sonde/{prefix}memory/{what}": reading.value for what, reading in found.items() if reading is not None}


def _point(steps: StepWindow, begin: int, end: int, to_wall: int, prefix: str) -> StepValues:
    """One point of the steps from `begin` up to `end`. A phase that was not recorded has no value."""
    values = {f"sonde/{prefix}step/total_ms": float(steps.took[begin:end].mean()) / 1e6}
    for place, part in enumerate(PARTS):
        spent = [value for value in steps.spent[begin:end, place].tolist() if not math.isnan(value)]
        if spent:
            values[f"sonde/{prefix}step/{part}_ms"] = sum(spent) / len(spent) / 1e6
    return StepValues(int(steps.step[end - 1]), int(steps.end[end - 1]) + to_wall, values)
