"""Results of stack sampling: the lines that took the most time, and a tree of calls for a flame graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import RESIDUAL, quoted

if TYPE_CHECKING:
    from sonde.analysis.run import Run

LEAST_SHARE = 0.005  # of all time: narrower calls are left out of a tree
DEEPEST = 64
TRAINING = "phase IS NOT NULL"  # the thread that trains


@dataclass(frozen=True)
class SampledLine:
    """A line of the program, and the time in which it, or what it calls, was seen in a phase."""

    phase: str
    function: str
    file: str
    line: int
    looks: int
    dur_ns: int
    share: float  # of the time of that phase


@dataclass
class Call:
    """A call in a flame graph: what it took in all, and what it called."""

    name: str
    dur_ns: int = 0
    calls: dict[str, Call] = field(default_factory=dict)

    def called(self, name: str) -> Call:
        """The call of this name in it."""
        if name not in self.calls:
            self.calls[name] = Call(name)
        return self.calls[name]


def lines(run: Run, limit: int, phase: str = RESIDUAL) -> list[SampledLine]:
    """The lines that took the most time of a phase, over all ranks."""
    rows = run.sql(
        f"""
        SELECT phase, function, file, line, count(*), sum(dur_ns)::BIGINT, sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share FROM samples
        WHERE phase = {quoted(phase)} AND function IS NOT NULL GROUP BY ALL ORDER BY 6 DESC, file, line LIMIT {limit}
        """
    ).fetchall()
    return [SampledLine(*row) for row in rows]


def flame(run: Run, where: str = TRAINING) -> Call:
    """The calls below each phase, over all ranks; calls of a function from several lines of another are one."""
    whole = Call("all")
    for phase, stack, dur in run.sql(
        f"SELECT coalesce(phase, 'other threads'), stack, sum(dur_ns)::BIGINT FROM samples WHERE stack IS NOT NULL AND {where} "
        "GROUP BY ALL ORDER BY 1, 2"
    ).fetchall():
        whole.dur_ns += dur
        call = whole.called(phase)
        call.dur_ns += dur
        for name in stack.split(";")[:DEEPEST]:
            call = call.called(_function(name))
            call.dur_ns += dur
    _prune(whole, round(whole.dur_ns * LEAST_SHARE))
    return whole


def collapsed(run: Run) -> list[tuple[str, int]]:
    """Each stack with its process, thread and phase before it, as flame graph tools read it; and its ns."""
    rows = run.sql(
        """
        SELECT coalesce('rank ' || rank, 'pid ' || pid) || coalesce(' worker ' || worker, ''), thread, phase, stack, sum(dur_ns)::BIGINT
        FROM samples WHERE stack IS NOT NULL GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    return [(";".join(filter(None, words)), dur) for *words, dur in rows]


def _function(name: str) -> str:
    """`train (train.py)` of `train (train.py:12)`."""
    return name.rpartition(":")[0] + ")"


def _prune(call: Call, least: int) -> None:
    call.calls = {name: one for name, one in call.calls.items() if one.dur_ns >= least}
    for one in call.calls.values():
        _prune(one, least)
