"""What processes and the host held in memory over the time of a run, one series each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde.analysis.records import label
from sonde.analysis.records.schema import BESIDE
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sonde.analysis.run import Run

    _Points = tuple[NDArray[np.int64], NDArray[np.float64]]

UNKNOWN = "other process"
SERIES = 256  # series at a time: each is lists of numbers until it is packed
HOST = {"container": ("cgroup.used", "cgroup.limit"), "host": ("ram.used", "ram.total")}
# Loader workers of one number are one series: each epoch starts new ones.


@dataclass(frozen=True)
class Series:
    """One thing that was measured again and again. `limit`: what it may have, in bytes."""

    who: str
    role: str
    host: str
    rank: int | None
    what: str  # rss, allocated, reserved, peak, used
    time: NDArray[np.int64]
    value: NDArray[np.float64]
    limit: int | None = None


def memory_series(run: Run) -> list[Series]:
    """All series: processes that the run knows first, then the host, or the container that limits it.

    Nothing that runs holds 0 bytes: that is what is measured of a process that has just ended.
    """
    measured = run.batches(
        f"""
        SELECT host, coalesce(key, pid) AS about, name, list(start_ns ORDER BY start_ns), list(value ORDER BY start_ns) FROM {BESIDE}
        WHERE kind = 'counter' AND isfinite(value) AND value > 0 AND (cat = '{probe.MEMORY}'
           OR cat = '{probe.SYSTEM}' AND name IN ({", ".join(f"'{name}'" for pair in HOST.values() for name in pair)}))
        GROUP BY ALL ORDER BY min(start_ns), name, about
        """,
        SERIES,
    )
    groups: dict[tuple[Any, ...], list[_Points]] = {}
    places = _places(run.rows)
    for rows in measured:
        for host, about, name, times, values in rows:
            points = np.array(times, np.int64), np.array(values, np.float64)
            if name.startswith(("ram.", "cgroup.")):
                groups.setdefault((host, host, "", None, name), []).append(points)
                continue
            for who, some in _owners(places.get((host, about), []), points):
                groups.setdefault((host, *who, name), []).append(some)
    joined = {key: _joined(some) for key, some in groups.items()}
    return _processes(joined) + _hosts(joined)


def _places(rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, Any], list[dict[str, Any]]]:
    found: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["start_ns"] or 0):
        found.setdefault((row["host"], row["pid"]), []).append(row)
    return found


def _owners(rows: list[dict[str, Any]], points: _Points) -> Iterator[tuple[tuple[str, str, int | None], _Points]]:
    """The processes that had a pid one after the other, as (name, role, rank), and what was measured of each."""
    if not rows:
        yield (UNKNOWN, "", None), points
        return
    times, values = points
    begins = np.searchsorted(times, [row["start_ns"] or 0 for row in rows[1:]]).tolist()
    for row, low, high in zip(rows, [0, *begins], [*begins, len(times)], strict=True):
        if low < high:
            who = label.process(row["role"], row["rank"], row["worker"]), row["role"] or "", row["rank"]
            yield who, (times[low:high], values[low:high])


def _joined(some: list[_Points]) -> _Points:
    """All of it, in the order of time."""
    if len(some) == 1:
        return some[0]
    times, values = (np.concatenate([one[place] for one in some]) for place in (0, 1))
    order = np.argsort(times, kind="stable")
    return times[order], values[order]


def _processes(groups: dict[tuple[Any, ...], _Points]) -> list[Series]:
    found = [
        Series(who, role, host, rank, name.removeprefix("device."), *points)
        for (host, who, role, rank, name), points in groups.items()
        if not name.startswith(("ram.", "cgroup.")) and who != UNKNOWN
    ]
    return sorted(
        found, key=lambda one: (one.role in ("launcher", "worker"), one.rank or 0, one.who, one.host, one.what)
    )


def _hosts(groups: dict[tuple[Any, ...], _Points]) -> list[Series]:
    found = []
    for who, (used, limit) in HOST.items():
        for (host, _, _, _, name), points in groups.items():
            if name == used:
                most = groups.get((host, host, "", None, limit))
                found.append(Series(who, who, host, None, "used", *points, round(float(most[1][-1])) if most else None))
    return found
