"""A pack: pieces of files of a run in one object, each compressed, behind a list of what they are.

A store is asked once for many small files, and a pack is whole or not there: its digest stands in the manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from sonde.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"sonde pack 1\n"
PIECE = 8 * 2**20  # bytes of a file in one piece at most
PACK = 32 * 2**20  # bytes after which a pack is closed
MOST_LIST = 64 * 2**20  # bytes of the list, unpacked
MOST_PIECES = 500_000
FAST = 1  # the level of compression: records shrink to a fifth, and more would cost the training's host
WORTH = 0.9  # of its size: what does not become smaller stays as it is
_LENGTH = struct.Struct("<Q")
_PATH = re.compile(
    r"(?:[A-Za-z0-9_+@=,()~ -][A-Za-z0-9._+@=,()~ -]*/){0,6}(?:[A-Za-z0-9_+@=,()~ -][A-Za-z0-9._+@=,()~ -]*|\.rank-[0-9]+)"
)

KEEP, FRESH, GONE = 0, 1, 2  # what becomes of the file: it stays and gets this piece, it begins anew, it is removed


class PackedRange(NamedTuple):
    """A range of a file."""

    path: str  # in the run folder
    at: int
    length: int
    packed: int  # bytes of it in the pack
    what: int  # KEEP, FRESH or GONE


class PackEntry(NamedTuple):
    """A pack as the manifest lists it."""

    name: str
    size: int
    digest: str


class Builder:
    """Takes pieces until it is full."""

    def __init__(self) -> None:
        self.pieces: list[PackedRange] = []
        self._bodies: list[bytes] = []
        self.size = 0

    @property
    def full(self) -> bool:
        """Is it time to send it?"""
        return self.size >= PACK or len(self.pieces) >= MOST_PIECES

    def add(self, path: str, at: int, content: bytes, what: int = KEEP) -> None:
        """Take a piece of a file."""
        body = zlib.compress(content, FAST)
        body = body if len(body) < WORTH * len(content) else content
        self.pieces.append(PackedRange(path, at, len(content), len(body), what))
        self._bodies.append(body)
        self.size += len(body)

    def content(self) -> bytes:
        """The pack."""
        listed = zlib.compress(json.dumps(self.pieces, separators=(",", ":")).encode(), FAST)
        return b"".join([MAGIC, _LENGTH.pack(len(listed)), listed, *self._bodies])


def entry_of(name: str, content: bytes) -> PackEntry:
    """The entry of a pack with this content."""
    return PackEntry(name, len(content), hashlib.sha256(content).hexdigest())


def unpacked(entry: PackEntry, content: bytes) -> Iterator[tuple[PackedRange, bytes]]:
    """The pieces of a pack, with their content. Raises RemoteError if it is not the one that the manifest lists."""
    if len(content) != entry.size or hashlib.sha256(content).hexdigest() != entry.digest:
        raise RemoteError(f"{entry.name} is damaged: it has {len(content)} bytes, or not the content that was pushed")
    pieces, place = _listed(content, entry.name)
    for piece in pieces:
        body = content[place : place + piece.packed]
        place += piece.packed
        if piece.packed != piece.length:
            body = _inflated(body, piece.length)
        if len(body) != piece.length:
            raise RemoteError(f"{entry.name} is damaged: {piece.path} has another length than the list says")
        yield piece, body


def _listed(content: bytes, name: str) -> tuple[list[PackedRange], int]:
    if not content.startswith(MAGIC):
        raise RemoteError(f"{name} was not written by this version of Sonde, or is not a pack")
    (length,) = _LENGTH.unpack_from(content, len(MAGIC))
    begin = len(MAGIC) + _LENGTH.size
    try:
        pieces = [PackedRange(*one) for one in json.loads(_inflated(content[begin : begin + length], MOST_LIST))]
    except (ValueError, TypeError, RecursionError):
        raise RemoteError(f"{name} is damaged: its list cannot be read") from None
    if not all(map(_is_sane, pieces)):
        raise RemoteError(f"{name} is damaged: its list has a path or a length that no run has")
    return pieces, begin + length


def _is_sane(piece: PackedRange) -> bool:
    path, *numbers = piece  # as JSON has them: of any type
    if type(path) is not str or not all(type(number) is int and number >= 0 for number in numbers):
        return False
    return bool(_PATH.fullmatch(piece.path)) and piece.length <= PIECE and piece.packed <= PIECE and piece.at < 2**50


def _inflated(body: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(body, most)
    except zlib.error:
        return b""


def is_sendable(path: str) -> bool:
    """Can a file of this path be in a pack?"""
    return bool(_PATH.fullmatch(path))
