"""`/series` and `/counters`: what the charts of a run draw, in as many points as they have room for."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.memory import memory_series
from sonde.analysis.questions.series import (
    BYTES,
    PERCENT,
    STEP,
    TIME,
    Points,
    SeriesRange,
    StepClock,
    of_samples,
    of_steps,
    whole,
)
from sonde.analysis.records.schema import BESIDE
from sonde.lazy import numpy as np
from sonde.store.probe import LOG, SYSTEM
from sonde.views.charts import usage
from sonde.web.asking import Ask, BadRequest, Binary

if TYPE_CHECKING:
    from sonde.analysis.run import Run

OF_STEPS = ("step", "phases", "communication", "loss", "throughput")
OF_SAMPLES = ("rss", "device", "cpu", "host_cpu", "gpu", "disk")
LEARNING = "learning:"
COUNTERS = ("rss", "device", "cpu", "host_cpu", "gpu", "disk")
MOST_LINES = 64
HOST = "all cores"


def series(run: Run, ask: Ask) -> object:
    """The lines that are asked for."""
    names = [name for name in ask.query.get("name", "step").split(",") if name]
    for name in names:
        if name not in (*OF_STEPS, *OF_SAMPLES) and not name.startswith(LEARNING):
            raise BadRequest(
                f"There is no series {name!r}. Valid: {', '.join((*OF_STEPS, *OF_SAMPLES))}, {LEARNING}NAME."
            )
    along = _stretch(run, ask, ask.choice("axis", (STEP, TIME)), 500)
    return _answer(ask, along, [] if along is None else lines(run, names, along, ask.optional("rank")))


def counters(run: Run, ask: Ask) -> object:
    """What is drawn below the timeline."""
    along = _stretch(run, ask, TIME, 300)
    return _answer(ask, along, [] if along is None else lines(run, list(COUNTERS), along, ask.optional("rank")))


def lines(run: Run, names: list[str], along: SeriesRange, rank: int | None) -> list[Points]:
    """All lines of these names; of samples at most 64."""
    found = of_steps(run, names, along, rank)
    clock = StepClock(run, along.started)
    sampled = [one for name in names for one in _samples(run, name) if rank is None or one[2] in (None, rank)]
    for name, unit, whose, time, value in sampled[:MOST_LINES]:
        one = of_samples(name, unit, whose, (time, value), along, clock)
        found += [] if one is None else [one]
    return found


def _stretch(run: Run, ask: Ask, unit: str, points: int) -> SeriesRange | None:
    found = whole(run, unit, ask.integer("points", points, 2, 10_000))
    first, last = ask.optional("from"), ask.optional("to")
    if first is not None and last is not None and last < first:
        raise BadRequest(f"from ({first}) lies behind to ({last}).")
    if found is None and unit == TIME:  # a program without steps may be measured all the same
        ends = [row["last_ns"] for row in run.rows if row["last_ns"] is not None]
        started = run.started or 0
        found = SeriesRange(TIME, 0, max(ends, default=started) - started, ask.integer("points", points), started)
    if found is None:
        return None
    return replace(found, first=found.first if first is None else first, last=found.last if last is None else last)


def _samples(run: Run, name: str) -> list[tuple[str, str, int | None, Any, Any]]:
    """(name, unit, rank, times, values) of each line."""
    if name in ("rss", "device"):
        what = {"rss": "rss", "device": "allocated"}[name]
        return [
            (f"{name}:{one.who}", BYTES, one.rank, one.time, one.value)
            for one in memory_series(run)
            if one.what == what
        ]
    if name in ("cpu", "host_cpu", "disk"):
        cpu, disk = usage(run)
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
        f"SELECT rank, start_ns, value FROM {BESIDE} WHERE kind = 'counter' AND {where} ORDER BY start_ns"
    ).fetchall()
    groups: dict[int | None, list[tuple[int, float]]] = {}
    for rank, time, value in rows:
        groups.setdefault(rank, []).append((time, value))
    return [(name, unit, rank, *zip(*points, strict=True)) for rank, points in groups.items()]  # type: ignore[misc]


def _answer(ask: Ask, along: SeriesRange | None, found: list[Points]) -> object:
    about = {
        "axis": None if along is None else along.unit,
        "from": None if along is None else along.first,
        "to": None if along is None else along.last,
    }
    if ask.choice("format", ("json", "f64")) == "json":
        return about | {"series": [asdict(one) for one in found]}
    counts = [asdict(one) | {name: len(getattr(one, name)) for name in ("x", "y", "min", "max")} for one in found]
    arrays = [np.array(getattr(one, name), np.float64) for one in found for name in ("x", "y", "min", "max")]
    return packed(about | {"series": counts}, arrays)


def packed(head: dict[str, Any], arrays: list[Any]) -> Binary:
    """One line of JSON, padded to 8 bytes, and arrays behind it."""
    line = json.dumps(head, allow_nan=False).encode()
    line += b" " * (-(len(line) + 1) % 8) + b"\n"
    return Binary(line + b"".join(one.astype("<f8").tobytes() for one in arrays))
