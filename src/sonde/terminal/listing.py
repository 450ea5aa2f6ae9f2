"""Draws the rows of a table or of a query."""

from __future__ import annotations

from rich.console import Console

from sonde import units
from sonde.terminal.layout import note
from sonde.terminal.table import TextColumn, fit, lines
from sonde.views.listing import IMPORTANT, Listing

NOT_KNOWN = "n/a"
SHOWN_NUMBERS = 6  # of a list in a cell
MOMENTS = (
    "start_ns", "end_ns", "time_ns", "last_ns", "made_ns", "from_ns", "until_ns", "at_ns", "jump_after_ns", "jump_before_ns",
)  # fmt: skip
SIZES = ("rss", "allocated", "reserved", "peak")


def draw_listing(view: Listing, console: Console) -> None:
    """The rows; columns that do not fit are named below."""
    columns = [_listed(view, index) for index in range(len(view.columns))]
    for line in lines(columns, console.width):
        console.print(line, soft_wrap=True)
    kept = {column.title for column in fit(columns, console.width)}
    left_out = [title for title in view.columns if _title(title) not in kept]
    if left_out:
        note(console, f"not shown: {', '.join(left_out)} (use a wider terminal or --json)", "dim")
    if not view.total:
        note(console, "no rows: nothing of this kind was recorded", "dim")
    if view.total > len(view.rows):
        note(console, f"{units.count(len(view.rows))} of {units.count(view.total)} rows; --limit 0 shows all", "dim")


def _listed(view: Listing, index: int) -> TextColumn:
    title = view.columns[index]
    values = [row[index] for row in view.rows]
    cells = [_value(view, title, value) for value in values]
    need = index
    if view.table:  # of an own query, the first columns count most
        need = IMPORTANT.index(title) if title in IMPORTANT else len(IMPORTANT) + index
    if values and all(value == values[0] for value in values) and (values[0] is None or not title.endswith("_ns")):
        need += 100  # what is the same everywhere tells least
    number = all(isinstance(value, int | float | None) for value in values)
    return TextColumn(_title(title), cells, need, right=number, least=None if number else 12)


def _title(column: str) -> str:
    """The name of a column without its unit, which stands in each cell."""
    return column.removesuffix("_ns").removesuffix("_bytes")


def _value(view: Listing, column: str, value: object) -> str:
    """A value as its column says: a moment counted from the start of the run, a duration, a size."""
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and column in MOMENTS and view.started_ns is not None:
        return f"+{units.duration(value - view.started_ns)}".replace("+-", "-")
    if isinstance(value, int) and column.endswith("_ns"):
        return units.duration(value)
    if isinstance(value, int) and (column.endswith("_bytes") or column in SIZES):
        return units.size(value)
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > SHOWN_NUMBERS else ""
        return ", ".join(map(str, value[:SHOWN_NUMBERS])) + more
    return units.number(value) if isinstance(value, float) else str(value)
