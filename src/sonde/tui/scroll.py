"""What a program wrote to its terminal, as lines: progress bars overwrite themselves, colours stay, the rest is dropped."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import repeat

from rich.text import Text

MOST_LINES = 2000
MOST_COLUMNS = 2000  # a longer line goes on in the next one
MOST_CODES = 8  # colour codes that may pile up without a reset
MOST_CELLS = 20_000  # different ones that are kept to be used again
TAB = 8
LONGEST_CODE = 4096  # an escape sequence that does not end by then is none

# Escape sequences: with parameters (CSI), with text (OSC and the like), with one character; then plain control characters.
_TOKEN = re.compile(
    r"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
    r"|(?P<text>[^\x00-\x1f\x7f]+)",
    re.DOTALL,
)


class Scroll:
    """The lines of a terminal with no bottom. `changed` counts how often something was written."""

    def __init__(self) -> None:
        self.changed = 0
        self._rows: list[list[tuple[str, str]]] = [[]]  # cells: a character, and the colour codes it was written with
        self._cells: dict[tuple[str, str], tuple[str, str]] = {}  # one of each kind, for all its places
        self._row = 0
        self._column = 0
        self._codes: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, content: bytes) -> None:
        """Take what the program wrote next, cut anywhere."""
        text = self._rest + self._decode.decode(content)
        self._rest = ""
        place = 0
        for found in self._tokens(text):
            self._take(found)
            place = found.end()
        if place < len(text):
            self._rest = text[place:][-LONGEST_CODE:]
        if len(self._rows) > MOST_LINES:
            gone = len(self._rows) - MOST_LINES
            del self._rows[:gone]
            self._row = max(0, self._row - gone)
        if len(self._cells) > MOST_CELLS:
            self._cells.clear()
        self.changed += bool(content)

    def __len__(self) -> int:
        """How many lines there are; an empty last one does not count."""
        return len(self._rows) - (not self._rows[-1])

    def lines(self, first: int, last: int) -> list[Text]:
        """Some of the lines, with their colours."""
        return [_drawn(row) for row in self._rows[max(0, first) : min(last, len(self))]]

    def _tokens(self, text: str) -> Iterator[re.Match[str]]:
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                if len(text) - place < LONGEST_CODE:
                    return  # the rest of a sequence is to come
                found = re.compile(".", re.DOTALL).match(text, place)
                assert found is not None
            yield found
            place = found.end()

    def _take(self, found: re.Match[str]) -> None:
        groups = found.groupdict()
        if groups.get("text"):
            self._write(groups["text"])
        elif groups.get("control"):
            self._control(groups["control"])
        elif groups.get("final"):
            self._sequence(groups["numbers"], groups["final"])

    def _write(self, text: str) -> None:
        codes = "".join(self._codes)
        for start in range(0, len(text), MOST_COLUMNS):
            written = zip(text[start : start + MOST_COLUMNS], repeat(codes), strict=False)
            cells = [self._cells.setdefault(cell, cell) for cell in written]
            if self._column + len(cells) > MOST_COLUMNS:
                self._newline()
            row = self._rows[self._row]
            if len(row) < self._column:
                row.extend([(" ", "")] * (self._column - len(row)))
            row[self._column : self._column + len(cells)] = cells
            self._column += len(cells)

    def _control(self, one: str) -> None:
        if one == "\n":
            self._newline()
        elif one == "\r":
            self._column = 0
        elif one == "\b":
            self._column = max(0, self._column - 1)
        elif one == "\t":
            self._column = min(MOST_COLUMNS, (self._column // TAB + 1) * TAB)

    def _newline(self) -> None:
        self._column = 0
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _sequence(self, numbers: str, final: str) -> None:
        count = _first(numbers, 1)
        if final == "m":
            self._colour(numbers)
        elif final == "A":
            self._row = max(0, self._row - count)
        elif final == "B":
            self._row = min(len(self._rows) - 1, self._row + count)
        elif final == "C":
            self._column = min(MOST_COLUMNS, self._column + count)
        elif final == "D":
            self._column = max(0, self._column - count)
        elif final == "G":
            self._column = min(MOST_COLUMNS, max(0, count - 1))
        elif final == "K":
            self._erase(_first(numbers, 0))

    def _colour(self, numbers: str) -> None:
        if numbers in ("", "0"):
            self._codes.clear()
        else:
            self._codes = [*self._codes, f"\x1b[{numbers}m"][-MOST_CODES:]

    def _erase(self, what: int) -> None:
        """0: to the end of the line; 1: to the cursor; 2: the whole line."""
        row = self._rows[self._row]
        if what in (0, 2):
            del row[0 if what == 2 else self._column :]
        elif what == 1:
            row[: self._column] = [(" ", "")] * min(self._column, len(row))


def _first(numbers: str, default: int) -> int:
    found = re.match(r"\d{1,6}", numbers)
    return int(found[0]) if found else default


def _drawn(row: list[tuple[str, str]]) -> Text:
    pieces: list[str] = []
    codes = ""
    for one, own in row:
        if own != codes:
            pieces.append(f"\x1b[0m{own}")
            codes = own
        pieces.append(one)
    drawn = Text.from_ansi("".join(pieces), no_wrap=True, overflow="crop", end="")
    drawn.rstrip()
    return drawn
