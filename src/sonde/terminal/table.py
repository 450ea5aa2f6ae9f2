"""A table that fits its width: it shortens the one column that may be shortened, then leaves out the least needed ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.text import Text

from sonde.views.safe import printable, shorten

GAP = 2


@dataclass(frozen=True)
class TextColumn:
    """One column. `need` 0 is never left out, and of the others the one with the highest number goes first."""

    title: str
    cells: list[str]
    need: int = 0
    right: bool = True
    styles: list[str] | None = None  # one for each cell
    least: int | None = None  # it may be shortened to so many cells
    keep_end: bool = False  # shortened, it loses its beginning

    def width(self) -> int:
        """As wide as its widest cell."""
        return max(cell_len(self.title), *(cell_len(cell) for cell in self.cells), 0)

    def narrowest(self) -> int:
        """As narrow as it can become."""
        return self.width() if self.least is None else min(self.width(), max(self.least, cell_len(self.title)))


def fit(columns: list[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into `width`, with cells that are safe to print."""
    kept = [_safe(column) for column in columns]
    while _narrowest(kept) > width and any(column.need for column in kept):
        kept.remove(max(kept, key=lambda column: column.need))
    return kept


def lines(columns: list[TextColumn], width: int, title_style: str = "dim") -> list[Text]:
    """The table, line by line, in at most `width` cells as far as that can be done."""
    columns = fit(columns, width)
    widths = _widths(columns, width)
    header = _line(columns, widths, [(column.title, title_style) for column in columns])
    count = len(columns[0].cells) if columns else 0
    return [header, *(_line(columns, widths, [_cell(column, row) for column in columns]) for row in range(count))]


def _widths(columns: list[TextColumn], width: int) -> list[int]:
    widths = [column.width() for column in columns]
    excess = sum(widths) + GAP * (len(columns) - 1) - width
    for index, column in enumerate(columns):
        if excess > 0 and column.least is not None:
            cut = min(excess, widths[index] - column.narrowest())
            widths[index] -= cut
            excess -= cut
    return widths


def _safe(column: TextColumn) -> TextColumn:
    cells = [printable(cell) for cell in column.cells]
    return replace(column, cells=cells)


def _narrowest(columns: list[TextColumn]) -> int:
    return sum(column.narrowest() for column in columns) + GAP * (len(columns) - 1)


def _cell(column: TextColumn, row: int) -> tuple[str, str]:
    return column.cells[row], column.styles[row] if column.styles else ""


def _line(columns: list[TextColumn], widths: list[int], cells: list[tuple[str, str]]) -> Text:
    line = Text(no_wrap=True)
    for index, (column, width, (text, style)) in enumerate(zip(columns, widths, cells, strict=True)):
        cell = shorten(text, width, keep_end=column.keep_end and text != column.title)
        space = " " * (width - cell_len(cell))
        if index:
            line.append(" " * GAP)
        if column.right:
            line.append(space)
        line.append(cell, style)
        if not column.right:
            line.append(space)
    line.rstrip()
    return line
