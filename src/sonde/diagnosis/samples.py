"""The lines of the program in which untracked time is spent, from `--sample`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import RESIDUAL
from sonde.diagnosis.figures import NOTHING, Asker, Figure, literal
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.diagnosis.speed import Speed

MOST = 5  # lines that are listed
SOURCE = (
    f"samples s JOIN steps t ON t.process = s.process AND t.step = s.step WHERE s.phase = '{RESIDUAL}' AND NOT t.warmup"
)


@dataclass(frozen=True)
class HotLine:
    """A line of the program. `looks`: how often it was seen; `time`: what these stand for, in ns."""

    function: str
    file: str
    line: int
    looks: int
    time: Figure

    def __str__(self) -> str:
        return f"{self.function} ({os.path.basename(self.file)}:{self.line})"


@dataclass(frozen=True)
class UntrackedLines:
    """All of it. Nothing is known where stacks were not sampled."""

    total: Figure = NOTHING
    top: list[HotLine] = field(default_factory=list)


def gather_lines(ask: Asker, speed: Speed) -> UntrackedLines:
    """Ask for the lines, if stacks were sampled and there is untracked time."""
    if not speed.trained or not ask.seen(probe.SAMPLE, [probe.SAMPLE_STACK]):
        return UntrackedLines()
    total = ask.one(SOURCE, {"total": "sum(s.dur_ns)"})["total"]
    found = ask.rows(
        f"SELECT s.function, s.file, s.line, count(*), sum(s.dur_ns)::BIGINT FROM {SOURCE} AND s.function IS NOT NULL "
        f"GROUP BY ALL ORDER BY 5 DESC, 2, 3 LIMIT {MOST}"
    )
    return UntrackedLines(total, [_line(*row) for row in found])


def _line(function: str, file: str, line: int, looks: int, total: int) -> HotLine:
    where = f"s.function = {literal(function)} AND s.file = {literal(file)} AND s.line = {line}"
    return HotLine(function, file, line, looks, Figure(total, f"SELECT sum(s.dur_ns) FROM {SOURCE} AND {where}"))
