"""Reads the events of a trace file batch by batch, in bounded memory: JSON as an object, as an array, or as lines.

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
from sonde.exchange.imports import decode
from sonde.exchange.imports.decode import Event

CHUNK = 1 << 20
SMALL = 1 << 12  # bytes that are first looked at for one value
MOST = 32 << 20  # bytes of one value (an event, or what stands beside the events), of a line, or between two values
LITERAL = 16  # bytes: what a cut may leave of a word, a number or an escape
RATIO, UNPACKED = 500, 256 << 20  # a gzip file that grows more than this, from so many bytes on, is no trace
EVENTS = "traceEvents"
GZIP = b"\x1f\x8b"

BEGIN, SPACE = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*"), re.compile(rb"[ \t\r\n]*")
BETWEEN, BETWEEN_LINES = re.compile(rb"[ \t\r\n,]*"), re.compile(rb"[ \t\r\n,\[\]]*")
_NEXT = re.compile(rb"\}(?=[ \t\r\n]*,[ \t\r\n]*\{)")  # the end of an event, if it is not inside of one

_decode = json.JSONDecoder().raw_decode


class Scan:
    """One file. `about` holds what stands beside the events, complete only after the last of them."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        """`progress` gets how many bytes of the file were read."""
        self.path = path
        self.about: dict[str, Any] = {}
        self.problems: list[str] = []
        self._progress = progress
        self._raw: io.BufferedReader
        self._file: io.BufferedReader | gzip.GzipFile
        self._data = b""
        self._at = 0
        self._begin = 0  # of the last value
        self._ended = False
        self._unpacked = 0
        self._size = CHUNK  # how much is decoded at once: less where something is damaged

    def batches(self) -> Iterator[list[Event]]:
        """All events, in lists that are not empty."""
        with open(self.path, "rb", opener=_regular) as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            self._raw = raw
            self._file = gzip.GzipFile(fileobj=raw) if packed else raw
            first = self._skip(BEGIN)
            if first == b"":
                raise RunUnreadable(f"{self.path} is empty. Give a trace file.")
            if first == b"[":
                self._at += 1
                yield from self._lines() if ".pfw" in self.path.name else self._array()
            elif first == b"{":
                yield from self._lines() if self._is_lines() else self._object()
            else:
                raise RunUnreadable(f"{self.path} is not a trace: it does not begin with JSON. {_KNOWN}")

    def _object(self) -> Iterator[list[Event]]:
        self._at += 1
        found = False
        while (sign := self._skip(BETWEEN)) not in (b"", b"}"):
            key = self._value()
            if not isinstance(key, str) or self._skip(SPACE) != b":":
                break
            self._at += 1
            if self._skip(SPACE) == b"[" and key == EVENTS:
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
        if sign != b"}":
            self._cut()

    def _array(self) -> Iterator[list[Event]]:
        while (sign := self._skip(BETWEEN)) not in (b"", b"]"):
            batch = self._batch(self._end_of_event, _as_array) or self._single() if sign == b"{" else None
            if not batch:
                self._cut()
                return
            yield batch
        if sign == b"":
            self._cut()
        self._at += 1

    def _lines(self) -> Iterator[list[Event]]:
        """One object per line. A bad line is skipped: DFTracer writes arguments that are not JSON."""
        bad = 0
        while self._skip(BETWEEN_LINES):
            batch = self._batch(self._end_of_line, decode.lines)
            if batch:
                yield batch
                continue
            line, whole = self._line()
            event = decode.one(line.rstrip(b", \t\r]")) if line else None
            if event is not None:
                yield [event]
            elif whole:
                bad += 1
            else:
                self._cut()
                break
        if bad:
            self.problems.append(f"{self.path}: {bad:,} lines are not valid JSON and were skipped.")

    def _batch(self, end_of: Callable[[int], int], decoded: Callable[[bytes], list[Event] | None]) -> list[Event]:
        """The events from here on, as far as they were read already; none if they cannot be decoded together."""
        self._have(CHUNK)
        while self._size >= SMALL:
            end = end_of(min(self._at + self._size, len(self._data)))
            found = decoded(self._data[self._at : end]) if end > self._at else None
            if found:
                self._at = end
                self._size = min(2 * self._size, CHUNK)
                return found
            self._size //= 4
        self._size = 2 * SMALL
        return []

    def _end_of_event(self, limit: int) -> int:
        """Where the last event ends before this place. It may be inside of an event: then it cannot be decoded."""
        for back in (SMALL, CHUNK):
            found = [one.end() for one in _NEXT.finditer(self._data, max(self._at, limit - back), limit)]
            if found:
                return found[-1]
        return self._at

    def _end_of_line(self, limit: int) -> int:
        return self._data.rfind(b"\n", self._at, limit) + 1

    def _single(self) -> list[Event]:
        """The next event; none if it is cut."""
        value = self._value()
        event = decode.one(self._data[self._begin : self._at]) if isinstance(value, dict) else None
        return [] if event is None else [event]

    def _line(self) -> tuple[bytes, bool]:
        """The rest of this line, and whether it has an end. One that is too long is cut, and nothing of it comes."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            there = len(self._data) - self._at
            if there >= MOST:
                return b"", False
            if not self._more(there + CHUNK):
                line, self._at = self._data[self._at :], len(self._data)
                return line, False
        line, self._at = self._data[self._at : end], end + 1
        return line, True

    def _is_lines(self) -> bool:
        """Lines of DFTracer: by the name of the file, or if its first line is an event."""
        if ".pfw" in self.path.name:
            return True
        line = self._data[self._at : self._at + CHUNK].partition(b"\n")[0]
        event = decode.one(line)
        return event is not None and event.ph is not None

    def _value(self) -> object:
        """The JSON value here, from `_begin`; `_NOTHING` if it is cut, damaged or larger than `MOST`."""
        wanted = SMALL
        while True:
            self._have(wanted)
            text = self._data[self._at : self._at + wanted].decode("utf-8", "surrogateescape")
            last = self._ended and self._at + wanted >= len(self._data)
            try:
                value, end = _decode(text)
            except RecursionError:
                return _NOTHING
            except json.JSONDecodeError as error:
                if error.pos < len(text) - LITERAL and not error.msg.startswith("Unterminated"):
                    return _NOTHING  # reading on does not help
                end = len(text) + 1
            if end < len(text) or (last and end == len(text)):
                self._begin = self._at
                self._at += len(text[:end].encode("utf-8", "surrogateescape"))
                return cast("object", value)
            if last or wanted >= MOST:
                return _NOTHING
            wanted = min(4 * wanted, MOST)

    def _skip(self, signs: re.Pattern[bytes]) -> bytes:
        """Pass by these characters; the next one, or nothing at the end."""
        passed = 0
        while passed < MOST:
            before, rest = self._at, len(self._data)
            self._at = signs.match(self._data, self._at).end()  # type: ignore[union-attr]  # it matches nothing too
            if self._at < rest:
                return self._data[self._at : self._at + 1]
            passed += self._at - before
            if not self._more():
                break
        return b""

    def _have(self, wanted: int) -> None:
        """Read until so many bytes are there, or the file ends."""
        missing = wanted - (len(self._data) - self._at)
        if missing > 0:
            self._more(max(missing, CHUNK))

    def _more(self, wanted: int = 0) -> bool:
        """Read on, and forget what was used; False at the end."""
        pieces: list[bytes] = []
        size = 0
        while not self._ended and size < (wanted or CHUNK):
            try:
                # One read at a time: what was unpacked before damage is not lost.
                pieces.append(self._file.read1(CHUNK))
            except (EOFError, gzip.BadGzipFile, zlib.error):
                pieces.append(b"")
            size += len(pieces[-1])
            self._ended = not pieces[-1]
        self._unpacked += size
        read = self._raw.tell()
        if self._unpacked > UNPACKED and self._unpacked > RATIO * read:
            raise RunUnreadable(
                f"{self.path} unpacks to over {RATIO} times its size. Real traces do not compress that well, so it is refused."
            )
        self._progress(read)
        if size:
            self._data, self._at = b"".join((self._data[self._at :], *pieces)), 0
        return size > 0

    def _cut(self) -> None:
        self.problems.append(f"{self.path} is truncated or damaged: only the events before that place were imported.")


_NOTHING = object()
_KNOWN = "Sonde imports Chrome JSON, torch.profiler JSON and DFTracer .pfw files."


def _as_array(text: bytes) -> list[Event] | None:
    return decode.array(b"[%b]" % text)


def _regular(path: str, flags: int) -> int:
    """Open a file; anything else, such as a pipe that nobody writes to, is refused."""
    if os.path.isdir(path):
        raise RunUnreadable(f"{path} is a folder. Give trace files.")
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunUnreadable(f"{path} is not a regular file. Give trace files.")
    return descriptor
