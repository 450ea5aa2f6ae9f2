"""Reads args.bin: the arguments of events as JSON text, one at a time, as hostile input."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NoReturn

from sonde.store.file import RegularFile, why
from sonde.store.record import ARGS_ALIGN, ARGS_MAGIC

if TYPE_CHECKING:
    from pathlib import Path

_LENGTH = struct.Struct("<I")
_WINDOW = 256 * 1024  # arguments that are asked for one after the other mostly lie side by side


class Blobs:
    """The arguments of one process. What cannot be read is None, and a note."""

    __slots__ = ("_base", "_file", "_notes", "_path", "_window", "bad")

    def __init__(self, path: Path, notes: list[str]) -> None:
        self._path = path
        self._notes = notes
        self._file: RegularFile | None = None
        self._base = 0
        self._window = b""
        self.bad = 0

    def text(self, id: int) -> str | None:
        """The arguments with this id, as the text of a JSON object."""
        offset = id * ARGS_ALIGN
        if offset < len(ARGS_MAGIC):
            return None
        try:
            blob = self._blob(offset)
        except OSError as error:
            self._note(f"args.bin {why(error)}")
            return None
        text = None if blob is None else _checked(blob)
        if text is None:
            self.bad += 1
            self._note("args.bin is damaged: some arguments cannot be read and are shown as missing")
        return text

    def close(self) -> None:
        """Close the file; it opens again when needed."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._window = b""

    def _blob(self, offset: int) -> bytes | None:
        head = self._bytes(offset, _LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        blob = self._bytes(offset + _LENGTH.size, length)
        return blob if len(blob) == length else None

    def _bytes(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes; never more than the file has, whatever a length in it says."""
        start = offset - self._base
        if start >= 0 and start + count <= len(self._window):
            return self._window[start : start + count]
        if self._file is None:
            self._file = RegularFile(self._path)
        if count > _WINDOW:
            return self._file.read(count, offset)
        self._base, self._window = offset, self._file.read(_WINDOW, offset)
        return self._window[:count]

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def _checked(blob: bytes) -> str | None:
    try:
        text = blob.decode()
        fields = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(fields, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
