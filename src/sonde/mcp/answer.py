"""An answer that fits a small context: lines, cut at a limit, and the calls that show more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_TOKENS = 2_000
BYTES_PER_TOKEN = 2.5  # numbers and names take more tokens than prose, which has about four bytes in each
MOST_BYTES = int(MOST_TOKENS * BYTES_PER_TOKEN)
MOST_LINE = 1_200  # bytes
CUT_ROOM = 120  # bytes for the line that says what was left out

# How a shell asks what a tool answers.
_SHELL = {
    "runs": "sonde runs",
    "report": "sonde report {run} --brief",
    "steps": 'sonde query {run} "select step, rank, dur_ns, loss from steps order by dur_ns desc limit 20"',
    "step": 'sonde query {run} "from steps where step = {step}"',
    "items": "sonde ask {run} item-cost",
    "items of a step": 'sonde query {run} "from items where step = {step}"',
    "layers": 'sonde query {run} "select layer, avg(forward_ns), avg(backward_ns) from layers group by 1 order by 2 desc"',
    "first_nan": "sonde blackbox {run}",
    "stacks": "sonde stacks {run}",
    "query": "sonde query {run} --schema",
    "compare": "sonde compare {a} {b}",
}


@dataclass(frozen=True)
class Hint:
    """A call that shows more: the tool, what to give it, and what that shows."""

    tool: str
    why: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def call(self) -> str:
        """`step(run="train-3f2a", step=54)`."""
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({given})"

    @property
    def command(self) -> str:
        """The same for a shell."""
        tool = "items of a step" if self.tool == "items" and "step" in self.arguments else self.tool
        return _SHELL[tool].format(**self.arguments)


def hint(tool: str, why: str, **arguments: Any) -> Hint:
    """A call that shows more."""
    return Hint(tool, why, arguments)


def fit(lines: Sequence[str], hints: Sequence[Hint] = (), *, commands: bool = False) -> str:
    """The lines that fit, how many do not, and where to look next."""
    end = [f"more: {one.command if commands else one.call}  # {one.why}" for one in hints]
    room = MOST_BYTES - sum(len(line.encode()) + 1 for line in end) - CUT_ROOM
    shown: list[str] = []
    for line in map(_short, lines):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        shown.append(line)
    left = len(lines) - len(shown)
    cut = (
        [f"[{left} more lines left out; ask for less at a time with limit, offset or a narrower query]"] if left else []
    )
    return "\n".join([*shown, *cut, *end])


def _short(line: str) -> str:
    content = line.encode()
    return line if len(content) <= MOST_LINE else content[:MOST_LINE].decode(errors="ignore") + " ... (cut)"
