"""The answer of `sonde gate`, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from sonde.compare.gate import FAIL, INCONCLUSIVE, PASS, Gate
from sonde.terminal.layout import block

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {PASS: "bold green", FAIL: "bold red", INCONCLUSIVE: "bold yellow"}
MEANING = {
    PASS: "every limit holds",
    FAIL: "a limit is exceeded",
    INCONCLUSIVE: "not enough data to decide, so it does not pass",
}


def draw_gate(found: Gate, console: Console) -> None:
    """The outcome, and the reason of each check."""
    console.print(Text.assemble((found.outcome.upper(), STYLES[found.outcome]), f"  {MEANING[found.outcome]}"))
    console.print(f"run       {found.run}" + (f"\nbaseline  {found.baseline}" if found.baseline else ""), style="dim")
    for one in found.checks:
        mark = Text(f"  {one.outcome:12}  ", STYLES[one.outcome].removeprefix("bold "))
        block(console, Text.assemble(mark, one.why), hang=16)
    for note in found.notes:
        console.print(f"  {note}", style="dim")
