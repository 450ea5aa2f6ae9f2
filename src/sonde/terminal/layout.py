"""What drawings are made of: headings, indented text that breaks where the terminal ends, tables and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from sonde.terminal.table import TextColumn, lines
from sonde.views.safe import printable

if TYPE_CHECKING:
    from rich.console import Console

INDENT = 2
MARGIN = " " * INDENT
NARROWEST = 20  # text is not broken into shorter lines than this


def heading(console: Console, title: str) -> None:
    """A title with an empty line above it."""
    console.print()
    console.print(Text(title.upper(), "bold cyan"))


def note(console: Console, text: str, style: str = "") -> None:
    """Free text, which may hold anything."""
    block(console, Text(printable(text), style), hang=INDENT)


def items(console: Console, texts: list[str]) -> None:
    """A list with a dash before each text."""
    for text in texts:
        block(console, Text(f"- {printable(text)}"), hang=2)


def pairs(console: Console, values: dict[str, str]) -> None:
    """Names and values below each other."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        line = Text(f"{name:{width}}", "dim")
        line.append(f"  {printable(value)}", "default")
        block(console, line, hang=width + 2)


def grid(console: Console, columns: list[TextColumn]) -> None:
    """A table that fits."""
    for line in lines(columns, console.width - INDENT):
        console.print(Text(MARGIN) + line)


def block(console: Console, text: Text, hang: int) -> None:
    """Text, indented; the lines after the first hang by `hang` more."""
    width = max(console.width - INDENT, NARROWEST)
    first = text.wrap(console, width)[:1]
    if not first:
        return
    done = len(first[0].plain.rstrip())
    broken = _lstripped(text[done:]).wrap(console, max(width - hang, NARROWEST))
    for number, line in enumerate([*first, *broken]):
        line.rstrip()
        if number == 0 or line.plain:
            console.print(Text(MARGIN if number == 0 else MARGIN + " " * hang) + line)


def _lstripped(text: Text) -> Text:
    return text[len(text.plain) - len(text.plain.lstrip()) :]
