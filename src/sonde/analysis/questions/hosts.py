"""How the clocks of the hosts of a run differ: the rows of the table `hosts`, and how to move times to the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.analysis.run import Run

_ROWS = """
    SELECT host, processes, ranks, from_ns, at_ns, offset_ns, drift_ppm, error_ns, collectives, source, jumps, jump_ns
    FROM hosts ORDER BY rowid
"""


@dataclass(frozen=True)
class HostClock:
    """How the clock of a host ran, or in which stretch. None: not known."""

    host: str
    processes: int
    ranks: int
    from_ns: int | None
    at_ns: int | None
    offset_ns: int | None  # ahead of the reference
    drift_ppm: float | None
    error_ns: int | None
    collectives: int | None
    source: str  # reference, collectives or wall clock
    jumps: int | None  # of its wall clock
    jump_ns: int | None  # the largest


def host_clocks(run: Run) -> list[HostClock]:
    """The clocks of all hosts, that of the reference first."""
    return [HostClock(*row) for row in run.sql(_ROWS).fetchall()]


def to_reference(run: Run) -> Callable[[str, int], int] | None:
    """Moves a moment of a process to the clock of the reference; None: there is nothing to move."""
    if len({row["host"] for row in run.rows}) < 2:
        return None
    courses: dict[str, list[HostClock]] = {}
    for clock in host_clocks(run):
        if clock.offset_ns is not None:
            courses.setdefault(clock.host, []).append(clock)
    if all(not one.offset_ns and not one.drift_ppm for some in courses.values() for one in some):
        return None
    of_process = {str(row["process"]): courses.get(str(row["host"]), []) for row in run.rows}

    def moved(process: str, moment: int) -> int:
        course = of_process.get(process)
        if not course:
            return moment
        clock = course[0]
        for later in course[1:]:
            if later.from_ns is not None and moment >= later.from_ns:
                clock = later
        ahead = (clock.offset_ns or 0) + round((clock.drift_ppm or 0.0) / 1e6 * (moment - (clock.at_ns or 0)))
        return moment - ahead

    return moved
