"""`/samples`: the lines in which untracked time was seen, and the calls of a flame graph."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sonde.analysis.questions.samples import Call, flame, lines

if TYPE_CHECKING:
    from sonde.analysis.run import Run
    from sonde.web.asking import Ask


def samples(run: Run, ask: Ask) -> object:
    """Both. Nothing where stacks were not sampled."""
    found = lines(run, ask.integer("limit", 100, 1, 10_000), ask.query.get("phase") or "residual")
    return {"lines": [asdict(one) for one in found], "flame": _plain(flame(run))}


def _plain(call: Call) -> dict[str, object]:
    return {"name": call.name, "dur_ns": call.dur_ns, "calls": [_plain(one) for one in call.calls.values()]}
