"""Reads the ledger of a process, whoever wrote it and in whatever state it is, and keeps the valid part."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

from sonde.store import ledger
from sonde.store.file import RegularFile, why
from sonde.store.folder import LEDGER_FILE as NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WINDOW = 1 << 20
TRIES = 10  # to read the head and the buffer while nobody moves them
_HEAD = struct.Struct("<8s4Q")
_ITEM_BYTES = {ledger.U16: 2, ledger.U32: 4, ledger.I64: 8}


class LedgerEntry(NamedTuple):
    """One entry; `content` is what stands behind its head."""

    code: int
    flags: int
    worker: int | None
    key: int
    count: int  # type: ignore[assignment]  # that tuples have a count() of their own is of no use here
    content: bytes

    def keys(self) -> list[object]:
        """The keys of a TEXT entry, as far as they were kept."""
        try:
            found = json.loads(self.content[ledger.SIZE.size :])
        except (ValueError, RecursionError):
            return []
        keys = found.get("keys") if isinstance(found, dict) else None
        return keys[: self.count] if isinstance(keys, list) else []


def read_entries(path: Path, notes: list[str]) -> Iterator[LedgerEntry]:
    """The entries of a ledger in their order. What is wrong becomes a note; a file that is not there is none."""
    try:
        file = RegularFile(path)
    except FileNotFoundError:
        return
    except OSError as error:
        notes.append(f"{path.name} {why(error)}")
        return
    with file:
        yield from _read(file, notes)


def _read(file: RegularFile, notes: list[str]) -> Iterator[LedgerEntry]:
    page, head = steady_page(file)
    magic, length, base, space, cap = head
    if magic != ledger.MAGIC:
        if page.strip(b"\0") or file.size() > ledger.DATA:  # else its process was killed when it had just made the file
            notes.append(f"{NAME} is damaged: it has no ledger header")
        return
    there = max(0, file.size() - ledger.DATA)
    if length > there:
        notes.append(f"{NAME} is truncated: it has {there} of {length} bytes")
    yield from _entries(_FilePart(file, ledger.DATA, min(length, there)), notes)
    if base == length:
        yield from _entries(_Buffer(page[ledger.HEAD_BYTES :]), notes)
    _note_losses(space, cap, notes)


def note_losses(path: Path, notes: list[str]) -> None:
    """Note what a ledger lacks, as it says itself, without reading it."""
    try:
        with RegularFile(path) as file:
            head = file.read(_HEAD.size, 0)
    except OSError:
        return
    if len(head) == _HEAD.size and head.startswith(ledger.MAGIC):
        _, _, _, space, cap = _HEAD.unpack(head)
        _note_losses(space, cap, notes)


def _note_losses(space: int, cap: int, notes: list[str]) -> None:
    why_lost = "could not be written: disk full, file-size limit, or closed file"
    for count, reason in ((space, f"that {why_lost}"), (cap, "that came after the size cap was reached")):
        note = f"{NAME} lacks {count} batches {reason}"
        if count and note not in notes:
            notes.append(note)


def steady_page(file: RegularFile) -> tuple[bytes, tuple[bytes, int, int, int, int]]:
    """The head with the buffer, at a moment when the buffer was not just being written out."""
    page = b""
    for _ in range(TRIES):
        page = file.read(ledger.DATA, 0)
        if file.read(_HEAD.size, 0) == page[: _HEAD.size]:
            break
    return page, _HEAD.unpack(page[: _HEAD.size].ljust(_HEAD.size, b"\0"))


class _FilePart:
    """A part of a file with entries, read window by window."""

    padded = False  # an empty entry is damage

    def __init__(self, file: RegularFile | None, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self.length = length
        self.window = b""
        self.base = 0  # where in the part the window begins

    def place(self, at: int, count: int) -> int | None:
        """Where in the window the bytes from `at` on stand; None if the part has fewer than `count` of them."""
        inside = at - self.base
        if inside + count <= len(self.window):
            return inside
        if at + count > self.length or self._file is None:
            return None
        self.base = at
        self.window = self._file.read(min(max(count, WINDOW), self.length - at), self._start + at)
        return 0 if count <= len(self.window) else None  # the file may have been cut meanwhile


class _Buffer(_FilePart):
    padded = True

    def __init__(self, content: bytes) -> None:
        super().__init__(None, ledger.HEAD_BYTES, len(content))
        self.window = content


def _entries(part: _FilePart, notes: list[str]) -> Iterator[LedgerEntry]:
    at = 0
    head = ledger.ENTRY
    while at < part.length:
        place = part.place(at, head.size)
        if part.padded and (place is None or not part.window[place]):
            return  # the buffer has no more
        size = None
        if place is not None:
            code, flags, worker, count, key = head.unpack_from(part.window, place)
            size = _size(code, count, part, at + head.size)
            place = None if size is None else part.place(at + head.size, size)
        if place is None or size is None:
            notes.append(f"{NAME} is damaged: the batches after its first {at} bytes are lost")
            return
        yield LedgerEntry(code, flags, None if worker < 0 else worker, key, count, part.window[place : place + size])
        at += head.size + size


def _size(code: int, count: int, part: _FilePart, at: int) -> int | None:
    """Bytes of an entry behind its head; None: it is none."""
    if code in _ITEM_BYTES:
        return count * _ITEM_BYTES[code] if count <= ledger.MOST_ITEMS else None
    if code == ledger.RANGE:
        return ledger.FIRST.size if count <= ledger.MOST_ITEMS else None
    if code == ledger.DIGEST:
        return ledger.HASH.size
    if code == ledger.RECIPE:
        return count if count <= ledger.MOST_RECIPE else None
    if code == ledger.TEXT:
        place = part.place(at, ledger.SIZE.size)
        return None if place is None else ledger.SIZE.size + int(ledger.SIZE.unpack_from(part.window, place)[0])
    return None
