"""The lines of the program in which time outside of phases is spent, from `--sample`."""

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
INFERRED = "input_wait"  # where no loader was seen
LEADING = 0.3  # of the time: what the first line must explain, to be named
LEAST_LOOKS = 5  # at a line, to name it


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

    @property
    def leading(self) -> HotLine | None:
        """The first line, if it explains enough of the time."""
        line = next(iter(self.top), None)
        if line is None or line.looks < LEAST_LOOKS or line.time.or_zero() < LEADING * self.total.or_zero():
            return None
        return line

    def share(self, line: HotLine) -> float:
        """What a line explains of the time."""
        return line.time.or_zero() / max(1.0, self.total.or_zero())


def gather_lines(ask: Asker, speed: Speed) -> UntrackedLines:
    """Ask for the lines of untracked time, if stacks were sampled."""
    return _lines(ask, speed, RESIDUAL)


def gather_gap_lines(ask: Asker, speed: Speed) -> UntrackedLines:
    """The same of the time between an update and the next forward, where that is taken for waiting for data."""
    return _lines(ask, speed, INFERRED) if speed.inferred else UntrackedLines()


def _lines(ask: Asker, speed: Speed, phase: str) -> UntrackedLines:
    if not speed.trained or not ask.seen(probe.SAMPLE, [probe.SAMPLE_STACK]):
        return UntrackedLines()
    source = f"samples s JOIN steps t ON t.process = s.process AND t.step = s.step WHERE s.phase = '{phase}' AND NOT t.warmup"
    total = ask.one(source, {"total": "sum(s.dur_ns)"})["total"]
    found = ask.rows(
        f"SELECT s.function, s.file, s.line, count(*), sum(s.dur_ns)::BIGINT FROM {source} AND s.function IS NOT NULL "
        f"GROUP BY ALL ORDER BY 5 DESC, 2, 3 LIMIT {MOST}"
    )
    return UntrackedLines(total, [_line(source, *row) for row in found])


def _line(source: str, function: str, file: str, line: int, looks: int, total: int) -> HotLine:
    where = f"s.function = {literal(function)} AND s.file = {literal(file)} AND s.line = {line}"
    return HotLine(function, file, line, looks, Figure(total, f"SELECT sum(s.dur_ns) FROM {source} AND {where}"))
