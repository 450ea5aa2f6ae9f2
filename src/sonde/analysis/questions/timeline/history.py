"""Steps over the whole run, cut into pieces that each keep minimum and maximum."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import PHASES, RESIDUAL

if TYPE_CHECKING:
    from sonde.analysis.run import Run

PARTS = (*PHASES, RESIDUAL)
SPARSE = 4  # step numbers that reach so many times further than there are steps are no axis


@dataclass(frozen=True)
class Axis:
    """What pieces are counted along: numbers of steps, or time where these say nothing. `width`: of one piece."""

    unit: str  # "step" or "ns"
    first: int
    width: float
    pieces: int

    @property
    def place(self) -> str:
        """The number of the piece that a row of `steps` lies in, as SQL."""
        column = "step" if self.unit == "step" else "start_ns"
        return f"least({self.pieces - 1}, floor(({column} - {self.first}) / {self.width!r}))::BIGINT"


@dataclass(frozen=True)
class Piece:
    """The steps of one piece, of all ranks. `phases`: means in ns, which add up; None where no phases were recorded."""

    place: int
    first: int
    last: int
    steps: int
    least_ns: int
    p50_ns: float
    p95_ns: float
    most_ns: int
    phases: dict[str, float] | None


@dataclass(frozen=True)
class Strip:
    """One rank over the pieces: its mean time in a step without communication; a piece may be missing."""

    process: str
    rank: int | None
    values: dict[int, float]


@dataclass(frozen=True)
class HostStrip:
    """One host over the pieces: how much longer its slowest rank took than that of the median host, and which one that was."""

    host: str
    values: dict[int, tuple[float, int | None]]

    @property
    def late_ns(self) -> float:
        """How late it is on average."""
        return sum(late for late, _ in self.values.values()) / max(len(self.values), 1)


def axis(run: Run, most: int) -> Axis | None:
    """The axis of a run; None if there are no steps."""
    first, last, begun, ended, count, longest = run.sql(
        """
        SELECT min(first), max(last), min(begun), max(ended), max(count), max(last - first + 1) FROM (
            SELECT min(step) AS first, max(step) AS last, min(start_ns) AS begun, max(start_ns + dur_ns) AS ended, count(*) AS count
            FROM steps GROUP BY process
        )
        """
    ).fetchall()[0]
    if not count:
        return None
    if first is not None and longest <= SPARSE * count + most:
        pieces = min(most, last - first + 1)
        return Axis("step", first, (last - first + 1) / pieces, pieces)
    pieces = min(most, count)
    return Axis("ns", begun, max(ended - begun, 1) / pieces, pieces)


def pieces(run: Run, along: Axis) -> list[Piece]:
    """All pieces that have steps, in order."""
    means = ", ".join(f"sum({part}_ns) / nullif(count(residual_ns), 0)" for part in PARTS)
    rows = run.sql(
        f"""
        SELECT {along.place}, min(step), max(step), count(DISTINCT step), min(dur_ns), quantile_cont(dur_ns, [0.5, 0.95]),
               max(dur_ns), count(residual_ns), {means}
        FROM steps WHERE dur_ns IS NOT NULL GROUP BY 1 ORDER BY 1
        """
    ).fetchall()
    return [_piece(row) for row in rows]


def _piece(row: tuple[Any, ...]) -> Piece:
    place, first, last, steps, least, points, most, known, *means = row
    phases = {part: ns for part, ns in zip(PARTS, means, strict=True) if ns is not None} if known else None
    return Piece(place, first, last, steps, least, points[0], points[1], most, phases)


def strips(run: Run, along: Axis) -> list[Strip]:
    """Each rank that trained, over the pieces, without the warm-up; of a job that was started again, each piece as it went last."""
    rows = run.sql(
        f"""
        SELECT process, any_value(rank), {along.place}, avg(dur_ns - coalesce(communication_ns, 0))
        FROM steps WHERE dur_ns IS NOT NULL AND NOT warmup GROUP BY 1, 3 ORDER BY 2 NULLS LAST, min(start_ns), 1, 3
        """
    ).fetchall()
    found: dict[str | int, Strip] = {}
    for process, rank, place, value in rows:
        found.setdefault(process if rank is None else rank, Strip(process, rank, {})).values[place] = value
    return list(found.values())


def host_strips(run: Run, ranks: list[Strip]) -> list[HostStrip]:
    """Each host over the pieces, the latest first; none if there is only one."""
    host_of = {str(row["process"]): str(row["host"]) for row in run.rows}
    hosts: dict[str, list[Strip]] = {}
    for one in ranks:
        hosts.setdefault(host_of[one.process], []).append(one)
    if len(hosts) < 2:
        return []
    slowest = {host: _slowest(some) for host, some in hosts.items()}
    places = {place for values in slowest.values() for place in values}
    middle = {place: median(values[place][0] for values in slowest.values() if place in values) for place in places}
    found = [
        HostStrip(host, {place: (own - middle[place], rank) for place, (own, rank) in slowest[host].items()})
        for host in hosts
    ]
    return sorted(found, key=lambda one: -one.late_ns)


def _slowest(ranks: list[Strip]) -> dict[int, tuple[float, int | None]]:
    """The slowest of some ranks in each piece: its time, and which one it is."""
    found: dict[int, tuple[float, int | None]] = {}
    for one in ranks:
        for place, value in one.values.items():
            if place not in found or value > found[place][0]:
                found[place] = value, one.rank
    return dict(sorted(found.items()))
