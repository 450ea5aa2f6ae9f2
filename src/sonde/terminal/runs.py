"""Draws the list of runs."""

from __future__ import annotations

from rich.console import Console

from sonde import units
from sonde.terminal.layout import note
from sonde.terminal.table import TextColumn, lines
from sonde.views.runs import BROKEN, Runs

ENDED_STYLES = {
    "running": "green",
    "crashed": "red",
    "killed": "red",
    BROKEN: "red",
    "interrupted": "yellow",
    "unknown": "yellow",
}
SEVERITY_STYLES = {"warn": "yellow", "critical": "red"}
WIDE, WHOLE_ID, END_OF_ID = 90, 30, 12  # columns of a terminal that shows ids whole, and of an id


def draw_runs(found: Runs, console: Console) -> None:
    """One line for each run; what is wrong with a broken one stands below it."""
    runs = found.runs
    known = [one.outcome for one in runs]
    least = WHOLE_ID if console.width >= WIDE else END_OF_ID
    columns = [
        TextColumn(
            "run", [one.id for one in runs], right=False, styles=["bold"] * len(runs), least=least, keep_end=True
        ),
        TextColumn(
            "ended",
            [one.ended for one in runs],
            right=False,
            styles=[ENDED_STYLES.get(one.ended.split()[0], "") for one in runs],
            least=11,
        ),
        TextColumn("ran", [units.duration(one.dur_ns) for one in runs], need=4),
        TextColumn(
            "started", [units.when(one.started_ns) for one in runs], need=7, right=False
        ),  # the id begins with it
        TextColumn("size", [units.size(one.size) for one in runs], need=6),
    ]
    if any(known):
        columns[1:1] = [
            TextColumn(
                "verdict",
                [one.verdict if one else units.MISSING for one in known],
                need=1,
                right=False,
                styles=[SEVERITY_STYLES.get(one.severity, "") if one else "" for one in known],
            )
        ]
        columns[3:3] = [
            TextColumn("steps", [units.count(one.steps) if one else units.MISSING for one in known], need=3),
            TextColumn("median step", [units.duration(one.p50_ns) if one else units.MISSING for one in known], need=2),
            TextColumn("loss", [_loss(one.loss if one else None) for one in known], need=5),
        ]
    table = lines(columns, console.width)
    console.print(table[0])
    for one, line in zip(runs, table[1:], strict=True):
        console.print(line)
        if one.problem:
            note(console, one.problem, "red")
    if found.left_out:
        note(console, f"and {units.plural(found.left_out, 'older run')}; --limit 0 shows all", "dim")


def _loss(loss: float | None) -> str:
    return units.MISSING if loss is None else units.brief(loss)
