"""`/series` and `/counters`: what the charts of a run draw, in as many points as they have room for."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.timeline.downsample import (
    STEP,
    TIME,
    Points,
    SeriesRange,
    whole,
)
from sonde.lazy import numpy as np
from sonde.views.series import LEARNING, OF_SAMPLES, OF_STEPS, lines
from sonde.web.asking import Ask, BadRequest, Binary

if TYPE_CHECKING:
    from sonde.analysis.run import Run

COUNTERS = ("rss", "device", "cpu", "host_cpu", "gpu", "disk")


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
