"""What a program wrote to its terminal, as lines."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, strategies as st

from sonde.tui import scroll
from sonde.tui.scroll import Scroll


def shown(*pieces: bytes) -> list[str]:
    found = Scroll()
    for piece in pieces:
        found.feed(piece)
    return [line.plain for line in found.lines(0, len(found))]


def test_a_progress_bar_overwrites_itself() -> None:
    """Carriage return goes back to the start of the line."""
    assert shown(b"10%|#   |\r50%|##  |\r100%|####|\ndone\n") == ["100%|####|", "done"]


def test_a_shorter_text_leaves_the_rest_unless_it_is_erased() -> None:
    """As a terminal does it."""
    assert shown(b"abcdef\rxy\n", b"abcdef\rxy\x1b[K\n") == ["xycdef", "xy"]


def test_two_bars_above_each_other() -> None:
    """tqdm moves the cursor up and down."""
    assert shown(b"outer 0\ninner 1\x1b[A\router 1\n\rinner 2") == ["outer 1", "inner 2"]


def test_colours_stay_and_other_codes_go() -> None:
    """Titles, links and cursor shapes are dropped."""
    found = Scroll()
    found.feed(b"\x1b]0;title\x07\x1b[?25l\x1b[1;31mred\x1b[0m plain\x1b(B\n")
    (line,) = found.lines(0, 9)
    assert line.plain == "red plain"
    assert [(span.start, span.end, str(span.style)) for span in line.spans] == [(0, 3, "bold color(1)")]


def test_a_sequence_may_come_in_pieces() -> None:
    """Also a character of several bytes."""
    assert shown(b"a\x1b[3", b"1mb\x1b", b"[0mc \xe2\x82", b"\xac") == ["abc €"]


def test_tabs_backspaces_and_bells() -> None:
    """What is not text does not print."""
    assert shown(b"a\tb\x07\n", b"abd\bc\n") == ["a       b", "abc"]


def test_only_the_newest_lines_are_kept() -> None:
    """A program that prints for days needs no more memory."""
    found = Scroll()
    for number in range(scroll.MOST_LINES * 2):
        found.feed(f"{number}\n".encode())
    assert len(found) <= scroll.MOST_LINES
    assert found.lines(len(found) - 1, len(found))[0].plain == str(scroll.MOST_LINES * 2 - 1)


def test_a_line_without_end_is_broken() -> None:
    """It cannot grow for ever either."""
    found = Scroll()
    for _ in range(100):
        found.feed(b"x" * 1000)
    assert max(len(line.plain) for line in found.lines(0, len(found))) <= scroll.MOST_COLUMNS


def test_an_escape_sequence_without_end_is_given_up() -> None:
    """Everything behind it is not lost."""
    assert "after" in "".join(shown(b"\x1b]" + b"x" * (2 * scroll.LONGEST_CODE), b"\nafter\n"))


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_make_lines(pieces: list[bytes]) -> None:
    """Binary output is no error, and no control character reaches the screen."""
    assert all(line.isprintable() or "\ufffd" in line or line.strip() for line in shown(*pieces))
    assert not any(ord(one) < 32 for line in shown(*pieces) for one in line)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=200), st.integers(0, 200))
def test_how_it_is_cut_does_not_matter(text: str, place: int) -> None:
    """Two pieces give what one gives."""
    content = text.replace("~", "\x1b[31m").replace("|", "\n").encode()
    assert shown(content[:place], content[place:]) == shown(content)


def test_a_full_scroll_is_small() -> None:
    """The same character in the same colours is kept once, however often it was written."""
    tracemalloc.start()
    try:
        found = Scroll()
        for number in range(scroll.MOST_LINES):
            found.feed(f"\x1b[32mstep {number:6}\x1b[0m {'loss 0.123456 ' * 6}\n".encode())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) >= scroll.MOST_LINES - 1
    assert kept < 4_000_000
