"""What the charts of a report show, as plain data: steps, ranks and memory over the time of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sonde.analysis.course import Axis, Piece, Strip, axis, pieces, strips
from sonde.analysis.held import Series, held

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sonde.analysis.run import Run

PIECES = 200
SINGLE = 400  # steps of a run that are drawn one by one
CELLS = 3000  # of the heat map, of all ranks together
FEWEST = 24  # cells of a rank
POINTS = 120  # of a line of memory, each with its least and its most
MOST_LINES = 10
MOST_STRIPS = 64


@dataclass(frozen=True)
class Line:
    """One line: (place, value) pairs; places from 0 to 1."""

    name: str
    role: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Charts:
    """Everything that is drawn over time. `left_out`: lines and ranks that are not shown."""

    axis: Axis | None
    pieces: list[Piece]
    heat_axis: Axis | None
    strips: list[Strip]
    strips_left_out: int
    memory: list[Line]
    memory_left_out: int
    memory_ns: int  # how long memory was looked at


def charts(run: Run) -> Charts:
    """The charts of a run."""
    along = axis(run, SINGLE)
    along = along if along and along.width <= 1 else axis(run, PIECES)
    ranks = run.sql("SELECT count(DISTINCT process) FROM steps").fetchall()[0][0] if along else 0
    coarse = axis(run, max(FEWEST, min(PIECES, CELLS // max(ranks, 1)))) if ranks > 1 else None
    rows = strips(run, coarse) if coarse else []
    series = [one for one in held(run) if one.role not in ("host", "container") and one.what in ("rss", "allocated")]
    shown = sorted(series, key=lambda one: -float(one.value.max()))[:MOST_LINES]
    begun: dict[str, int] = {}  # by host: their clocks may disagree
    for one in shown:
        begun[one.host] = min(int(one.time[0]), begun.get(one.host, int(one.time[0])))
    lasted = max((int(one.time[-1]) - begun[one.host] for one in shown), default=0)
    return Charts(
        axis=along,
        pieces=pieces(run, along) if along else [],
        heat_axis=coarse,
        strips=rows[:MOST_STRIPS],
        strips_left_out=max(0, len(rows) - MOST_STRIPS),
        memory=[_line(one, begun[one.host], max(lasted, 1)) for one in shown],
        memory_left_out=len(series) - len(shown),
        memory_ns=lasted,
    )


def _line(series: Series, begun: int, lasted: int) -> Line:
    name = series.who if series.what == "rss" else f"{series.who}, device"
    points = thinned(series.time, series.value, POINTS)
    return Line(name, series.role, [((time - begun) / lasted, value) for time, value in points])


def thinned(time: NDArray[np.int64], value: NDArray[np.float64], most: int) -> list[tuple[int, float]]:
    """At most `2 * most` of the points: of each stretch the least and the most, in their order."""
    if len(time) <= 2 * most:
        return list(zip(time.tolist(), value.tolist(), strict=True))
    kept: list[int] = []
    for part in np.array_split(np.arange(len(time)), most):
        kept += sorted({int(part[value[part].argmin()]), int(part[value[part].argmax()])})
    return [(int(time[place]), float(value[place])) for place in kept]
