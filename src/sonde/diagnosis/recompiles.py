"""Recompiles of torch.compile: how often, of which functions and why, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.diagnosis.figures import Asker, Figures
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.diagnosis.speed import Speed

MOST = 10  # functions that are listed
_MARKS = f"(SELECT * FROM events WHERE cat = '{probe.RECOMPILE}')"


@dataclass(frozen=True)
class Recompiled:
    """A function, how often it was compiled again, and the last reason."""

    function: str
    file: str
    line: int
    times: int
    reason: str | None


@dataclass(frozen=True)
class Recompiles:
    """All of them. `figures`: count, steps, last step, and the time that steps with one took more than the median."""

    figures: Figures = field(default_factory=lambda: Figures({}, {}))
    functions: list[Recompiled] = field(default_factory=list)


def gather_recompiles(ask: Asker, speed: Speed) -> Recompiles:
    """Ask about recompiles."""
    if not ask.has(probe.RECOMPILE):
        return Recompiles()
    figures = ask.one(_MARKS, {"count": "count(*)", "steps": "count(DISTINCT step)", "last": "max(step)"})
    functions = ask.rows(
        "SELECT args::JSON->>'$.function', args::JSON->>'$.file', (args::JSON->>'$.line')::BIGINT, count(*) AS times, "
        f"arg_max(args::JSON->>'$.reason', start_ns) FROM {_MARKS} GROUP BY 1, 2, 3 ORDER BY times DESC, 1 LIMIT {MOST}"
    )
    usual = 0.0 if speed.train is None else speed.train.p50.or_zero()
    took = f"(SELECT dur_ns - {usual!r} AS excess FROM steps WHERE (process, step) IN (SELECT process, step FROM {_MARKS}))"
    figures["excess"] = ask.one(took, {"excess": "sum(greatest(excess, 0))"})["excess"]
    return Recompiles(figures, [Recompiled(*row) for row in functions])
