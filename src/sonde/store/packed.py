"""The packed beginning of a segment: its records column by column, compressed, in frames behind one another.

`events.packed` stands beside the segment. Whoever packs writes a frame there, and then makes a hole in `events.seg` in its place, which
keeps its size: so a place in the segment stays the same, and whoever reads takes what is packed from here.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.file import RegularFile
from sonde.store.folder import PACKED_FILE, SEGMENT_FILE

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"sondePK1"
HEAD = struct.Struct("<8sQIII")  # magic; where in the segment, bytes of it; bytes here and their checksum
UNIT = 12_288  # whole records and whole pages of memory: what can be a hole
FRAME = 85 * UNIT  # of the segment in one frame, at most: about a megabyte
LEVEL = 6  # of zlib: records shrink to an eighth
# Of these columns the differences are written: they are small, or always the same.
_RISING = ("start", "key", "args", "seq", "parent", "step")


class PackedFrame(NamedTuple):
    """A packed range of the segment, and where its content stands in the file of the frames."""

    begin: int
    length: int
    place: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Where in the segment the next frame begins."""
        return self.begin + self.length


class Frames:
    """The frames of a process folder, as many as there are now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: RegularFile | None = None
        self.found: list[PackedFrame] = []
        self._size = 0  # of the file, when it was looked at last
        self._last: tuple[PackedFrame, bytes] | None = None

    @property
    def end(self) -> int:
        """How many bytes of the segment are packed."""
        return self.found[-1].end if self.found else 0

    @property
    def behind(self) -> int:
        """Where the last whole frame ends in the file."""
        return self.found[-1].place + self.found[-1].size if self.found else 0

    def look(self) -> None:
        """Find the frames that were added. One that is not whole does not count, and nothing behind it."""
        try:
            file = self._file = self._file or RegularFile(self._path)
        except OSError:
            return
        size = file.size()
        if size != self._size:
            self._size = size
            while (frame := self._read(file, size)) is not None:
                self.found.append(frame)

    def _read(self, file: RegularFile, size: int) -> PackedFrame | None:
        head = file.read(HEAD.size, self.behind)
        if len(head) < HEAD.size:
            return None
        magic, begin, length, packed, crc = HEAD.unpack(head)
        frame = PackedFrame(begin, length, self.behind + HEAD.size, packed, crc)
        sane = magic == MAGIC and begin == self.end and 0 < length <= FRAME and length % record.RECORD_SIZE == 0
        return frame if sane and frame.place + packed <= size else None

    def fill(self, buffer: memoryview, offset: int) -> None:
        """Write what is packed of the range from `offset` on into `buffer`, which has what stands in the segment."""
        end = offset + len(buffer)
        for place in range(bisect_right(self.found, offset, key=lambda frame: frame.end), len(self.found)):
            frame = self.found[place]
            if frame.begin >= end:
                break
            first, last = max(offset, frame.begin), min(end, frame.end)
            buffer[first - offset : last - offset] = self._content(frame)[first - frame.begin : last - frame.begin]

    def _content(self, frame: PackedFrame) -> bytes:
        if self._last is None or self._last[0] != frame:
            assert self._file is not None
            body = self._file.read(frame.size, frame.place)
            # What is damaged are no records: readers count them.
            content = unpack(body, frame.length) if zlib.crc32(body) == frame.crc else bytes(frame.length)
            self._last = frame, content
        return self._last[1]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Segment(RegularFile):
    """`events.seg` of a process folder, whether its beginning is packed or not."""

    __slots__ = ("_frames",)

    def __init__(self, folder: Path) -> None:
        self._frames = Frames(folder / PACKED_FILE)
        super().__init__(folder / SEGMENT_FILE)

    def fill(self, buffer: memoryview, offset: int) -> int:
        """Read into `buffer`; the number of bytes that the file had for it."""
        done = super().fill(buffer, offset)
        self._frames.look()  # afterwards: what was packed meanwhile may have been a hole already
        self._frames.fill(buffer[:done], offset)
        return done

    def read(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only where the file ends."""
        buffer = bytearray(max(0, min(count, self.size() - offset)))
        return bytes(buffer[: self.fill(memoryview(buffer), offset)])

    def close(self) -> None:
        """Close the file; harmless when it is closed already."""
        super().close()
        self._frames.close()


def open_file(path: Path) -> RegularFile:
    """A file of a process folder, to be read as it was written: a segment also where it is packed."""
    return Segment(path.parent) if path.name == SEGMENT_FILE else RegularFile(path)


def pack(content: bytes) -> bytes:
    """Records, column by column, compressed."""
    records = np.frombuffer(content, dtype=list(record.RECORD_FIELDS))
    columns = []
    for name, kind in record.RECORD_FIELDS:
        values = np.ascontiguousarray(records[name]).view(f"<u{np.dtype(kind).itemsize}")
        if name in _RISING:
            values = np.diff(values, prepend=values.dtype.type(0))
        columns.append(np.ascontiguousarray(values.view(np.uint8).reshape(len(records), values.itemsize).T).tobytes())
    return zlib.compress(b"".join(columns), LEVEL)


def unpack(body: bytes, length: int) -> bytes:
    """What `pack` took: `length` bytes of records, or zeros if it was something else."""
    try:
        content = zlib.decompressobj().decompress(body, length)
    except zlib.error:
        content = b""
    count = length // record.RECORD_SIZE
    if len(content) != length:
        return bytes(length)
    records = np.empty(count, dtype=list(record.RECORD_FIELDS))
    place = 0
    for name, kind in record.RECORD_FIELDS:
        size = np.dtype(kind).itemsize
        shuffled = np.frombuffer(content, np.uint8, count * size, place).reshape(size, count)
        values = np.ascontiguousarray(shuffled.T).view(f"<u{size}").reshape(count)
        records[name] = (np.cumsum(values, dtype=values.dtype) if name in _RISING else values).view(kind)
        place += count * size
    return records.tobytes()
