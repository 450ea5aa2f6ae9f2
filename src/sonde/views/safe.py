"""Text from a recording made safe for a terminal: it may hold anything, but must not move the cursor or break a line."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def printable(text: str) -> str:
    """The same text, with every character that does not print as an escape."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def shorten(text: str, width: int, *, keep_end: bool = False) -> str:
    """The text in at most `width` cells; what was cut off shows as one dot-dot-dot."""
    if cell_len(text) <= width:
        return text
    if keep_end:
        return shorten(text[::-1], width)[::-1]
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…" if width > 0 else ""
