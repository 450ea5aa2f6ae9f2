"""The lines that interactive charts draw, in the browser and in a report: one name, one or several lines over a stretch of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.memory import memory_series
from sonde.analysis.questions.timeline.downsample import (
    BYTES,
    PERCENT,
    Points,
    SeriesRange,
    StepClock,
    of_samples,
    of_steps,
)
from sonde.analysis.records.schema import BESIDE
from sonde.store.probe import LOG, SYSTEM
from sonde.views.charts import Measured, usage

if TYPE_CHECKING:
    from sonde.analysis.run import Run

OF_STEPS = ("step", "phases", "communication", "loss", "throughput")
OF_SAMPLES = ("rss", "device", "cpu", "host_cpu", "gpu", "disk")
LEARNING = "learning:"
MOST_LINES = 64
HOST = "all cores"


def lines(run: Run, names: list[str], along: SeriesRange, rank: int | None) -> list[Points]:
    """All lines of these names; of samples at most 64."""
    found = of_steps(run, names, along, rank)
    clock = StepClock(run, along.started)
    used: Used = usage(run) if _OF_USAGE.intersection(names) else ({}, {})
    sampled = [one for name in names for one in _samples(run, name, used) if rank is None or one[2] in (None, rank)]
    for name, unit, whose, time, value in sampled[:MOST_LINES]:
        one = of_samples(name, unit, whose, (time, value), along, clock)
        found += [] if one is None else [one]
    return found


Used = tuple[Measured, Measured]  # CPU and disk
_OF_USAGE = frozenset(("cpu", "host_cpu", "disk"))


def _samples(run: Run, name: str, used: Used) -> list[tuple[str, str, int | None, Any, Any]]:
    """(name, unit, rank, times, values) of each line."""
    if name in ("rss", "device"):
        what = {"rss": "rss", "device": "allocated"}[name]
        return [
            (f"{name}:{one.who}", BYTES, one.rank, one.time, one.value)
            for one in memory_series(run)
            if one.what == what
        ]
    if name in _OF_USAGE:
        cpu, disk = used
        wanted = (
            disk if name == "disk" else {who: one for who, one in cpu.items() if (HOST in who) == (name == "host_cpu")}
        )
        unit = BYTES + "/s" if name == "disk" else PERCENT
        return [
            (f"{name}:{who}", unit, _rank(who), [at for at, _ in points], [value for _, value in points])
            for who, points in wanted.items()
            if points
        ]
    if name == "gpu":
        return _counted(run, f"cat = '{SYSTEM}' AND name = 'gpu.load'", "gpu", PERCENT)
    if name.startswith(LEARNING):
        word = name.removeprefix(LEARNING).replace("'", "''")
        return _counted(run, f"cat = '{LOG}' AND name = '{word}'", name, "")
    return []


def _rank(who: str) -> int | None:
    words = who.split()
    return int(words[1]) if len(words) > 1 and words[0] == "rank" and words[1].isdecimal() else None


def _counted(run: Run, where: str, name: str, unit: str) -> list[tuple[str, str, int | None, Any, Any]]:
    rows = run.sql(
        f"SELECT rank, start_ns, value FROM {BESIDE} WHERE kind = 'counter' AND {where} ORDER BY start_ns"  # noqa: S608  our own names
    ).fetchall()
    groups: dict[int | None, list[tuple[int, float]]] = {}
    for rank, time, value in rows:
        groups.setdefault(rank, []).append((time, value))
    return [(name, unit, rank, *zip(*points, strict=True)) for rank, points in groups.items()]  # type: ignore[misc]
