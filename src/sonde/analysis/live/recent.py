"""The steps that ended since the last read, ready to be drawn after the points of `questions.downsample`: the same numbers, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import PHASES, RESIDUAL
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sonde.analysis.live.run import Live, LiveProcess
    from sonde.analysis.live.window import StepWindow

    Floats = NDArray[np.float64]

MOST_STEPS = 300  # of one look: the newest
MOST_RANKS = 16  # that are also given one by one


@dataclass(frozen=True)
class RecentSteps:
    """Steps in their order. Over several ranks: median, least and most of the step time, means of the phases, the rank of the longest.

    `time_ns` counts from the start of the run. `loss` is the last one, of the first rank.
    """

    step: list[int]
    time_ns: list[int]
    dur_ns: list[float]
    min_ns: list[float]
    max_ns: list[float]
    slowest: list[int | None]
    samples: list[float | None]
    phases: dict[str, list[float | None]]  # only those that were seen
    loss: float | None


def recent(live: Live, after: int, rank: int | None = None) -> RecentSteps | None:
    """The steps after this one, of all ranks or of one. None if there are none."""
    trainers = [one for one in live.trainers if rank is None or one.info.rank == rank]
    known = [(one, _after(one.window.steps(), after)) for one in trainers]
    known = [(one, steps) for one, steps in known if len(steps.step)]
    if not known:
        return None
    numbers = np.unique(np.concatenate([steps.step for _, steps in known]))[-MOST_STEPS:]
    took = _grid(numbers, [(steps.step, steps.took.astype(np.float64)) for _, steps in known])
    spent = [
        _grid(numbers, [(steps.step, steps.spent[:, place]) for _, steps in known]) for place in range(len(PHASES) + 1)
    ]
    begun = _grid(
        numbers, [(steps.step, (steps.start + _offset(live, one)).astype(np.float64)) for one, steps in known]
    )
    samples = _grid(numbers, [(steps.step, steps.samples) for _, steps in known])
    longest = np.nanargmax(took, axis=0)
    counted = np.maximum((~np.isnan(took)).sum(axis=0), 1)
    seen = {
        name: _plain(np.nansum(grid, axis=0) / counted)
        for name, grid in zip((*PHASES, RESIDUAL), spent, strict=True)
        if not np.isnan(grid).all()
    }
    loss = trainers[0].window.loss
    return RecentSteps(
        step=numbers.tolist(),
        time_ns=[int(one) for one in np.nanmin(begun, axis=0)],
        dur_ns=np.nanmedian(took, axis=0).tolist(),
        min_ns=np.nanmin(took, axis=0).tolist(),
        max_ns=np.nanmax(took, axis=0).tolist(),
        slowest=[known[place][0].info.rank for place in longest.tolist()],
        samples=_plain(np.where(np.isnan(samples).all(axis=0), math.nan, np.nansum(samples, axis=0))),
        phases=seen,
        loss=loss,
    )


def _after(steps: StepWindow, after: int) -> StepWindow:
    return steps.after(int(np.searchsorted(steps.step, after, "right")) if len(steps.step) else 0)


def _grid(numbers: NDArray[np.int64], rows: list[tuple[NDArray[np.int64], Floats]]) -> Floats:
    """One row for each rank, one column for each step; NaN where a rank has not done it."""
    found = np.full((len(rows), len(numbers)), math.nan)
    for row, (steps, values) in zip(found, rows, strict=True):
        known = steps >= numbers[0]
        row[np.searchsorted(numbers, steps[known])] = values[known]
    return found


def _offset(live: Live, one: LiveProcess) -> int:
    """What to add to the clock of a process to have the time since the start of the run."""
    start = live.meta.get("start")
    begun = start.get("wall_ns") if isinstance(start, dict) else None
    own = one.info.start
    return 0 if own is None or not isinstance(begun, int) else own.wall_ns - own.mono_ns - begun


def _plain(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
