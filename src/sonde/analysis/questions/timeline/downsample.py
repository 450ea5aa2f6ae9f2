"""Numbers over a stretch of a run in a few points: each keeps minimum and maximum, so that no spike is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.timeline.history import PARTS, Axis
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sonde.analysis.run import Run

STEP, TIME = "step", "time"
NS, BYTES, PERCENT, PER_SECOND, PLAIN = "ns", "bytes", "%", "1/s", ""


@dataclass(frozen=True)
class SeriesRange:
    """A part of a run: steps, or ns since its start, the last one included, in so many points."""

    unit: str  # STEP or TIME
    first: int
    last: int
    points: int
    started: int  # of the run, in wall-clock ns

    @property
    def axis(self) -> Axis:
        """The pieces that it is cut into."""
        length = max(self.last - self.first + 1, 1)
        pieces = min(self.points, length)
        if self.unit == STEP:
            return Axis("step", self.first, length / pieces, pieces)
        return Axis("ns", self.first + self.started, length / pieces, pieces)

    @property
    def inside(self) -> str:
        """The condition for rows of `steps`, as SQL."""
        if self.unit == STEP:
            return f"step BETWEEN {self.first} AND {self.last}"
        return f"start_ns BETWEEN {self.first + self.started} AND {self.last + self.started}"


MOST_EXACT = 5_000_000  # steps, over which medians are exact


@dataclass(frozen=True)
class Points:
    """One line. `clipped`: values that are not finite, and so are not among them. `slowest`: of `step`, for each point its longest
    step and the rank of it. `estimated`: the medians, as of very many steps.
    """

    name: str
    unit: str
    rank: int | None
    x: list[float]
    y: list[float | None]
    min: list[float | None]
    max: list[float | None]
    clipped: int = 0
    slowest: list[tuple[int | None, int | None]] | None = None
    estimated: bool = False


def whole(run: Run, unit: str, points: int) -> SeriesRange | None:
    """All steps of a run, or all its time; None if there are no steps."""
    started = run.started or 0
    first, last, begun, ended = run.sql(
        "SELECT min(step), max(step), min(start_ns), max(start_ns + dur_ns) FROM steps"
    ).fetchall()[0]
    if begun is None or (unit == STEP and first is None):
        return None
    if unit == STEP:
        return SeriesRange(STEP, first, last, points, started)
    return SeriesRange(TIME, begun - started, ended - started, points, started)


def of_steps(run: Run, names: Sequence[str], along: SeriesRange, rank: int | None = None) -> list[Points]:
    """The lines `step`, `phases`, `communication`, `loss`, `throughput`: of one rank, or of all ranks together."""
    where = f"{along.inside} AND dur_ns IS NOT NULL" + ("" if rank is None else f" AND coalesce(rank, 0) = {rank}")
    at = "min(step)" if along.unit == STEP else f"min(start_ns) - {along.started}"
    found: list[Points] = []
    asked = {name: _QUERIES[name] for name in names if name in _QUERIES}
    if not asked:
        return found
    columns = ", ".join(column for query in asked.values() for column in query)
    ((count,),) = run.sql(f"SELECT count(*) FROM steps WHERE {where}").fetchall()
    if count > MOST_EXACT:  # an exact median holds every value in memory
        columns = columns.replace(_MEDIAN, _ESTIMATE)
    rows = run.sql(f"SELECT {at}, {columns} FROM steps WHERE {where} GROUP BY {along.axis.place} ORDER BY 1").fetchall()
    x = [float(row[0]) for row in rows]
    place = 1
    for name, query in asked.items():
        values = [list(column) for column in zip(*(row[place : place + len(query)] for row in rows), strict=True)]
        found += _lines(name, rank, x, values, estimated=count > MOST_EXACT) if rows else []
        place += len(query)
    return found


_MEDIAN, _ESTIMATE = "median(dur_ns)", "approx_quantile(dur_ns, 0.5)"
_UNKNOWN = -(2**62)  # a step or a rank that is not known
_QUERIES: dict[str, tuple[str, ...]] = {
    "step": (
        _MEDIAN,
        "min(dur_ns)",
        "max(dur_ns)",
        f"arg_max(coalesce(step, {_UNKNOWN}), dur_ns)",  # not both as one: that takes memory for each new maximum
        f"arg_max(coalesce(rank, {_UNKNOWN}), dur_ns)",
    ),
    "phases": tuple(f"sum({part}_ns) / nullif(count(residual_ns), 0)" for part in PARTS),
    "communication": ("avg(communication_ns)", "min(communication_ns)", "max(communication_ns)"),
    "loss": (
        "arg_max(loss, start_ns) FILTER (isfinite(loss))",
        "min(loss) FILTER (isfinite(loss))",
        "max(loss) FILTER (isfinite(loss))",
        "count(*) FILTER (NOT isfinite(loss))",
    ),
    "throughput": (
        "sum(samples) / nullif(sum(dur_ns) FILTER (samples IS NOT NULL), 0) * 1e9 * count(DISTINCT process)",
    ),
}
_UNITS = {"step": NS, "communication": NS, "loss": PLAIN, "throughput": PER_SECOND}


def _lines(name: str, rank: int | None, x: list[float], values: list[list[Any]], *, estimated: bool) -> list[Points]:
    if name == "phases":
        pairs = zip(PARTS, values, strict=True)
        return [Points(f"phase:{part}", NS, rank, x, y, y, y) for part, y in pairs if any(one is not None for one in y)]
    slowest = None
    if name == "step":
        ranks, steps = ([None if one == _UNKNOWN else one for one in values.pop()] for _ in ("rank", "step"))
        slowest = list(zip(steps, ranks, strict=True))
    clipped = sum(values.pop()) if name == "loss" else 0
    if not clipped and all(one is None for one in values[0]):
        return []
    low, high = values[1:] if len(values) == 3 else (values[0], values[0])
    return [Points(name, _UNITS[name], rank, x, values[0], low, high, clipped, slowest, estimated and name == "step")]


def of_samples(
    name: str, unit: str, rank: int | None, samples: tuple[Any, Any], along: SeriesRange, clock: StepClock
) -> Points | None:
    """A line of measurements at moments: the mean of each piece. None if there is none in this stretch."""
    time, value = (np.asarray(one, np.float64) for one in samples)
    place = clock(time - along.started) if along.unit == STEP else time - along.started
    known = (place >= along.first) & (place <= along.last) & np.isfinite(value)
    clipped = int((~np.isfinite(value)).sum())
    place, value = place[known], value[known]
    if not len(value):
        return None
    piece = np.minimum((place - along.first) / along.axis.width, along.axis.pieces - 1).astype(np.int64)
    order = np.argsort(piece, kind="stable")
    piece, place, value = piece[order], place[order], value[order]
    starts = np.flatnonzero(np.append(True, piece[1:] != piece[:-1]))
    counts = np.diff(np.append(starts, len(piece)))
    y = np.add.reduceat(value, starts) / counts
    x = place[starts]
    low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    return Points(name, unit, rank, x.tolist(), y.tolist(), low.tolist(), high.tolist(), clipped)


class StepClock:
    """Which step there was at a moment: of the process that has the most steps."""

    PIECES = 2000

    def __init__(self, run: Run, started: int) -> None:
        rows = run.sql(
            f"""
            WITH one AS (SELECT process FROM steps GROUP BY process ORDER BY count(*) DESC, process LIMIT 1),
                 own AS (SELECT step, start_ns, row_number() OVER (ORDER BY start_ns) AS place, count(*) OVER () AS total
                         FROM steps WHERE process = (FROM one) AND step IS NOT NULL)
            SELECT min(step), min(start_ns) FROM own GROUP BY place * {self.PIECES} // total ORDER BY 2
            """
        ).fetchall()
        self._step = np.array([row[0] for row in rows], np.float64)
        self._time = np.array([row[1] - started for row in rows], np.float64)

    def __call__(self, time: NDArray[np.float64]) -> NDArray[np.float64]:
        """The steps at these moments, NaN where there is no step at all."""
        if not len(self._time):
            return np.full(len(time), np.nan)
        found: NDArray[np.float64] = np.interp(time, self._time, self._step)
        return found
