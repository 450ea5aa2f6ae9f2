"""`/hosts`: how late each host was, how their clocks ran, and what the attempts of the job achieved."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.analysis.questions.goodput import goodput
from sonde.analysis.questions.hosts import host_clocks
from sonde.views import hosts as words
from sonde.views.charts import rank_heat

if TYPE_CHECKING:
    from sonde.analysis.questions.goodput import Goodput
    from sonde.analysis.questions.hosts import HostClock
    from sonde.analysis.run import Run
    from sonde.views.charts import Heat
    from sonde.web.asking import Ask


def hosts(run: Run, ask: Ask) -> object:
    """All of it, in the words of the report."""
    found, clocks = goodput(run), host_clocks(run)
    return {
        "goodput": None if found is None else _goodput(run, found),
        "clocks": [_clock(one) for one in clocks] if words.has_clocks(clocks) else [],
        "about_clocks": words.CLOCKS_OF_PAGE,
        "heat": _heat(rank_heat(run)),
    }


def _goodput(run: Run, found: Goodput) -> dict[str, object]:
    started = run.started or 0
    attempts = [
        asdict(one) | {"started_ns": None if one.started_ns is None else one.started_ns - started}
        for one in found.attempts
    ]
    return asdict(found) | {
        "attempts": attempts,
        "line": words.goodput_line(found),
        "advice": words.goodput_advice(found),
    }


def _clock(one: HostClock) -> dict[str, object]:
    return {
        "host": one.host,
        "ranks": one.ranks,
        "ahead": words.ahead(one),
        "error": words.error(one),
        "drift": words.drift(one),
        "basis": words.basis(one),
        "was_set": words.was_set(one),
        "jumps": one.jumps,
    }


def _heat(heat: Heat) -> dict[str, object] | None:
    """Each host over the pieces of the axis: how late it was, and its slowest rank; null where it did nothing."""
    along = heat.axis
    if along is None or not heat.hosts:
        return None
    pieces = range(along.pieces)
    rows = [
        {
            "host": one.host,
            "late_ns": [one.values[place][0] if place in one.values else None for place in pieces],
            "rank": [one.values[place][1] if place in one.values else None for place in pieces],
        }
        for one in heat.hosts
    ]
    return {
        "unit": along.unit, "first": along.first, "width": along.width, "high_ns": heat.hosts_high_ns, "hosts": rows,
    }  # fmt: skip
