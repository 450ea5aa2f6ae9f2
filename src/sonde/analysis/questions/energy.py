"""Energy: joules per step of the hosts and devices of a run, where they can be read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import BESIDE
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.analysis.run import Run

FEWEST = 2.0  # seconds of steps: the counters are read once a second
SOURCES = {probe.ENERGY: "processors", probe.GPU_ENERGY: "devices"}
Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Energy:
    """What all programs on the hosts used while this run trained: other programs are in it. `steps`: of the rank with most."""

    per_step_j: float
    total_j: float
    steps: int
    sources: list[str]  # "processors", "devices": what is not listed is not known


def energy(run: Run) -> Energy | None:
    """That of a run, after the warm-up; None: nothing could be read, or the training was too short."""
    names = run.database.source.name_counts.values()
    if not any(one.cat == probe.SYSTEM and one.name in SOURCES for named in names for one in named):
        return None
    rows = run.sql(
        f"SELECT host, name, key, process, start_ns, value FROM {BESIDE} WHERE kind = 'counter' AND cat = '{probe.SYSTEM}' "
        f"AND name IN ('{probe.ENERGY}', '{probe.GPU_ENERGY}') ORDER BY start_ns"
    ).fetchall()
    spans = {
        host: (begun, ended)
        for host, begun, ended in run.sql(
            "SELECT host, min(start_ns), max(start_ns + dur_ns) FROM steps WHERE NOT warmup GROUP BY host"
        ).fetchall()
    }
    ((steps,),) = run.sql(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM steps WHERE NOT warmup GROUP BY process)"
    ).fetchall()
    counters: dict[tuple[str, str, int], dict[str, Points]] = {}
    for host, name, key, process, time, value in rows:
        counters.setdefault((host, name, key), {}).setdefault(process, []).append((time, value))
    used: dict[str, float] = {}
    for (host, name, _), by_process in counters.items():
        points = next(iter(by_process.values()))  # of several launchers of a host, the first
        begun, ended = spans.get(host, (0, 0))
        if (ended - begun) / 1e9 >= FEWEST and points[0][0] <= begun and points[-1][0] >= begun:
            used[name] = used.get(name, 0.0) + _at(points, min(ended, points[-1][0])) - _at(points, begun)
    if not used or not steps:
        return None
    total = sum(used.values())
    return Energy(total / steps, total, steps, [SOURCES[name] for name in sorted(used)])


def _at(points: Sequence[tuple[int, float]], time: int) -> float:
    """What a counter was at a time, between two looks in proportion."""
    place = bisect_right(points, (time, float("inf")))
    if place == len(points):
        return points[-1][1]
    (early, low), (late, high) = points[place - 1], points[place]
    return low + (high - low) * (time - early) / (late - early)
