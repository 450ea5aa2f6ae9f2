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
    from numpy.typing import NDArray

    from sonde.analysis.run import Run

UNKNOWN = "other process"
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
    measured = run.sql(
        f"""
        SELECT host, coalesce(key, pid) AS about, name, start_ns, value FROM {BESIDE}
        WHERE kind = 'counter' AND isfinite(value) AND value > 0 AND (cat = '{probe.MEMORY}'
           OR cat = '{probe.SYSTEM}' AND name IN ({", ".join(f"'{name}'" for pair in HOST.values() for name in pair)}))
        ORDER BY start_ns
        """
    ).fetchall()
    groups: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    places = _places(run.rows)
    for host, about, name, start, value in measured:
        who = (
            _who(places.get((host, about), []), start) if not name.startswith(("ram.", "cgroup.")) else (host, "", None)
        )
        groups.setdefault((host, *who, name), []).append((start, value))
    return _processes(groups) + _hosts(groups)


def _places(rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, Any], list[dict[str, Any]]]:
    found: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["start_ns"] or 0):
        found.setdefault((row["host"], row["pid"]), []).append(row)
    return found


def _who(rows: list[dict[str, Any]], moment: int) -> tuple[str, str, int | None]:
    """The name, the role and the rank of the process that had a pid at that moment."""
    begun = [row for row in rows if (row["start_ns"] or 0) <= moment] or rows
    if not begun:
        return UNKNOWN, "", None
    row = begun[-1]
    return label.process(row["role"], row["rank"], row["worker"]), row["role"] or "", row["rank"]


def _processes(groups: dict[tuple[Any, ...], list[tuple[int, float]]]) -> list[Series]:
    found = [
        _series(who, role, host, rank, name.removeprefix("device."), points)
        for (host, who, role, rank, name), points in groups.items()
        if not name.startswith(("ram.", "cgroup.")) and who != UNKNOWN
    ]
    return sorted(
        found, key=lambda one: (one.role in ("launcher", "worker"), one.rank or 0, one.who, one.host, one.what)
    )


def _hosts(groups: dict[tuple[Any, ...], list[tuple[int, float]]]) -> list[Series]:
    found = []
    for who, (used, limit) in HOST.items():
        for (host, _, _, _, name), points in groups.items():
            if name == used:
                most = groups.get((host, host, "", None, limit))
                found.append(_series(who, who, host, None, "used", points, round(most[-1][1]) if most else None))
    return found


def _series(
    who: str,
    role: str,
    host: str,
    rank: int | None,
    what: str,
    points: list[tuple[int, float]],
    limit: int | None = None,
) -> Series:
    time = np.fromiter((one for one, _ in points), np.int64, len(points))
    value = np.fromiter((one for _, one in points), np.float64, len(points))
    return Series(who, role, host, rank, what, time, value, limit)
