"""Tables that fit."""

from __future__ import annotations

from hypothesis import given, strategies as st
from rich.cells import cell_len

from sonde.terminal.table import TextColumn, lines
from sonde.views.safe import printable, shorten


def columns() -> list[TextColumn]:
    return [
        TextColumn("name", ["short", "a rather long name"], right=False, least=8),
        TextColumn("total", ["1 s", "2 s"]),
        TextColumn("p50", ["1 ms", "2 ms"], need=1),
        TextColumn("p95", ["3 ms", "4 ms"], need=2),
    ]


def text(width: int) -> list[str]:
    return [line.plain for line in lines(columns(), width)]


def test_a_wide_table_shows_everything() -> None:
    """With room enough no column is left out and nothing is shortened."""
    assert text(80) == [
        "name                total   p50   p95",
        "short                 1 s  1 ms  3 ms",
        "a rather long name    2 s  2 ms  4 ms",
    ]


def test_the_long_column_is_shortened_first() -> None:
    """As long as all columns fit, only the name gives way."""
    assert text(30)[2] == "a rather l…    2 s  2 ms  4 ms"


def test_the_least_needed_column_goes_first() -> None:
    """When shortening is not enough, the column with the highest number is left out."""
    assert text(24)[0].split() == ["name", "total", "p50"]
    assert text(16)[0].split() == ["name", "total"]


@given(st.integers(18, 200), st.lists(st.text(), min_size=1))
def test_no_line_is_wider_than_allowed(width: int, names: list[str]) -> None:
    """Whatever the cells hold, each line stays within its width and on one line."""
    drawn = lines([TextColumn("name", names, right=False, least=8), TextColumn("count", ["1,000"] * len(names))], width)
    assert all(cell_len(line.plain) <= width and line.plain.isprintable() for line in drawn)


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    """A name that holds control characters is shown with escapes."""
    assert printable("a\x1b[31m\n\ud800é") == "a\\x1b[31m\\n\\ud800é"


def test_wide_characters_are_cut_by_cells() -> None:
    """A character that takes two cells counts as two."""
    assert shorten("日本語", 4) == "日…"
