"""Reads the events of a trace file one by one, in bounded memory: JSON as an object, as an array, or as lines.

What is cut or damaged gives the events before that place; `Scan.problems` says so.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from sonde.errors import RunUnreadable

CHUNK = 1 << 20
MOST = 64 << 20  # characters of one value: an event, or what stands beside the events
EVENTS = "traceEvents"
GZIP = b"\x1f\x8b"

BEGIN, SPACE = re.compile(r"[ \t\r\n\ufeff]*"), re.compile(r"[ \t\r\n]*")
BETWEEN, BETWEEN_LINES = re.compile(r"[ \t\r\n,]*"), re.compile(r"[ \t\r\n,\[\]]*")

_decode = json.JSONDecoder().raw_decode


class Scan:
    """One file. `about` holds what stands beside the events, complete only after the last of them."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        """`progress` is told how many bytes of the file were read."""
        self.path = path
        self.about: dict[str, Any] = {}
        self.problems: list[str] = []
        self._progress = progress
        self._raw: io.BufferedReader
        self._file: io.BufferedReader | gzip.GzipFile
        self._text = ""
        self._at = 0
        self._ended = False
        self._begin = 0  # of the last value
        self._partial = b""  # the beginning of a character

    def events(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Each event, and the text it was read from."""
        with open(self.path, "rb", opener=_regular) as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            self._raw = raw
            self._file = gzip.GzipFile(fileobj=raw) if packed else raw
            first = self._skip(BEGIN)
            if first == "":
                raise RunUnreadable(f"{self.path} is empty. Give a trace file.")
            if first == "[":
                self._at += 1
                yield from self._lines() if ".pfw" in self.path.name else self._array()
            elif first == "{":
                yield from self._lines() if self._is_lines() else self._object()
            else:
                raise RunUnreadable(f"{self.path} is not a trace: it does not begin with JSON. {_KNOWN}")

    def _object(self) -> Iterator[tuple[dict[str, Any], str]]:
        self._at += 1
        found = False
        while (sign := self._skip(BETWEEN)) not in ("", "}"):
            key = self._value()
            if not isinstance(key, str) or self._skip(SPACE) != ":":
                break
            self._at += 1
            if self._skip(SPACE) == "[" and key == EVENTS:
                self._at += 1
                found = True
                yield from self._array()
                if self.problems:
                    return
                continue
            value = self._value()
            if value is _NOTHING:
                break
            self.about[key] = value
        if not found:
            raise RunUnreadable(f"{self.path} is not a trace: it has no {EVENTS}. {_KNOWN}")
        if sign != "}":
            self._cut()

    def _array(self) -> Iterator[tuple[dict[str, Any], str]]:
        while (sign := self._skip(BETWEEN)) not in ("", "]"):
            value = self._value() if sign == "{" else _NOTHING
            if value is _NOTHING:
                self._cut()
                return
            yield cast("dict[str, Any]", value), self._text[self._begin : self._at]
        if sign == "":
            self._cut()
        self._at += 1

    def _lines(self) -> Iterator[tuple[dict[str, Any], str]]:
        """One object per line. A bad line is skipped: DFTracer writes arguments that are not JSON."""
        bad = 0
        while self._skip(BETWEEN_LINES):
            line, whole = self._line()
            try:
                value = json.loads(line.rstrip(", \t\r]")) if line else None
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                yield value, line
            elif whole:
                bad += 1
            else:
                self._cut()
        if bad:
            self.problems.append(f"{self.path}: {bad:,} lines are not valid JSON and were skipped.")

    def _line(self) -> tuple[str, bool]:
        """The rest of this line, and whether it has an end. One that is too long comes as an empty text."""
        while (end := self._text.find("\n", self._at)) < 0:
            if len(self._text) - self._at > MOST:
                while not self._ended and "\n" not in self._text:
                    self._text, self._at = "", 0
                    self._more()
                self._at = self._text.find("\n") + 1
                return "", not self._ended
            if not self._more():
                line, self._at = self._text[self._at :], len(self._text)
                return line, False
        line, self._at = self._text[self._at : end], end + 1
        return line, True

    def _is_lines(self) -> bool:
        """Lines of DFTracer: by the name of the file, or if its first line is an event."""
        if ".pfw" in self.path.name:
            return True
        line = self._text[self._at : self._at + CHUNK].partition("\n")[0]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict) and "ph" in value

    def _value(self) -> object:
        """The JSON value here; `_NOTHING` if it is cut, damaged or larger than `MOST`."""
        self._begin = self._at
        wanted = CHUNK
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except RecursionError:
                return _NOTHING
            except ValueError:
                pass
            else:
                if end < len(self._text) or self._ended:
                    self._at = end
                    return cast("object", value)
            if self._ended or len(self._text) - self._at > MOST:
                return _NOTHING
            while len(self._text) - self._at < wanted and self._more():
                pass
            self._begin = self._at
            wanted *= 2  # so that a long value is not read again too often

    def _skip(self, signs: re.Pattern[str]) -> str:
        """Pass by these characters; the next one, or nothing at the end."""
        while True:
            rest = len(self._text)
            self._at = signs.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches nothing too
            if self._at < rest:
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on, and forget what was used; False at the end."""
        if self._ended:
            return False
        try:
            # One read at a time: what was unpacked before damage is not lost.
            data = self._file.read1(CHUNK)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            data = b""
        self._progress(self._raw.tell())
        self._ended = not data
        data = self._partial + data
        self._partial = b"" if self._ended else data[len(data) - _begun(data) :]
        text = data[: len(data) - len(self._partial)].decode("utf-8", "replace")
        self._text, self._at = self._text[self._at :] + text, 0
        return not self._ended

    def _cut(self) -> None:
        self.problems.append(f"{self.path} is truncated or damaged: only the events before that place were imported.")


_NOTHING = object()
_KNOWN = "Sonde imports Chrome JSON, torch.profiler JSON and DFTracer .pfw files."


def _begun(data: bytes) -> int:
    """How many bytes at the end belong to a character of UTF-8 that is not complete."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length else 0
        if byte < 0x80:
            break
    return 0


def _regular(path: str, flags: int) -> int:
    """Open a file; anything else, such as a pipe that nobody writes to, is refused."""
    if os.path.isdir(path):
        raise RunUnreadable(f"{path} is a folder. Give trace files.")
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunUnreadable(f"{path} is not a regular file. Give trace files.")
    return descriptor
