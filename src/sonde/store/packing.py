"""Packs records of a running program that have left the rings, so that a long run stays below its size cap.

`python -m sonde.store.packing RUN`: the launcher starts it when a run has half of what it may have. It packs the segments of all processes of this
host, makes holes in their place, and counts what that frees. Where no holes can be made, as on many network disks, nothing is packed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path

from sonde.store import usage
from sonde.store.file import RegularFile
from sonde.store.folder import FILE_MODE, PACKED_FILE, SEGMENT_FILE, host, open_usage, opened
from sonde.store.packed import FRAME, HEAD, MAGIC, UNIT, Frames, pack
from sonde.store.process import read_info
from sonde.store.reading.reader import read_newest

NOTHING = 3  # the exit code if nothing could be packed
LEAST = 8 * UNIT  # bytes that are worth a frame
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)


def pack_run(run: Path) -> int:
    """Pack what can be packed of all processes of this host; the bytes that it freed."""
    with opened(str(run)) as folder:
        counts = usage.RunUsage(open_usage(folder))
    freed = 0
    try:
        for segment in sorted(run.glob(f"*/{SEGMENT_FILE}")):
            with suppress(OSError):  # it has gone, or its disk is full
                freed += _pack_process(segment.parent, counts)
    finally:
        counts.close()
    return freed


def _pack_process(folder: Path, counts: usage.RunUsage) -> int:
    info = read_info(folder, [])
    header = read_newest(folder, info, []).header
    if info.host != host() or header is None:
        return 0
    with RegularFile(folder / SEGMENT_FILE) as segment:
        end = min(header.seg_len, segment.size())
        if end < LEAST:
            return 0
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        hole = os.open(folder / SEGMENT_FILE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        file = os.open(folder / PACKED_FILE, flags, FILE_MODE)
        frames = Frames(folder / PACKED_FILE)
        try:
            return _Packer(segment, hole, file, frames).pack(end, counts)
        finally:
            frames.close()
            os.close(hole)
            os.close(file)


class _Packer:
    """Packs one segment. `hole` and `file`: descriptors of it and of its frames, for writing."""

    def __init__(self, segment: RegularFile, hole: int, file: int, frames: Frames) -> None:
        self._segment, self._hole, self._file, self._frames = segment, hole, file, frames

    def pack(self, end: int, counts: usage.RunUsage) -> int:
        """Pack as much as there is before `end`; the bytes that it freed."""
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of several launchers, one
        self._frames.look()
        os.ftruncate(self._file, self._frames.behind)  # half of a frame, of somebody who was killed
        self._frames.look()
        _punch(
            self._hole, self._frames.end
        )  # again, for the same reason; first of all: where it cannot be, nothing is packed
        freed = 0
        while (length := min(FRAME, (end - self._frames.end) // UNIT * UNIT)) >= LEAST:
            less = self._frame(length)
            counts.add(usage.BYTES, -less)  # one by one: of two that count at the same moment, one is lost
            freed += less
        return freed

    def _frame(self, length: int) -> int:
        begin = self._frames.end
        body = pack(self._segment.read(length, begin))
        content = HEAD.pack(MAGIC, begin, length, len(body), zlib.crc32(body)) + body
        written = os.pwrite(self._file, content, self._frames.behind)
        if written < len(content):
            os.ftruncate(self._file, self._frames.behind)
            raise OSError("no room for a frame")
        os.fsync(self._file)
        self._frames.look()
        _punch(self._hole, self._frames.end)
        return length - len(content)


def _punch(descriptor: int, end: int) -> None:
    """Make a hole of the first `end` bytes of a file, which keeps its size. Raises OSError where that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = ctypes.c_int64(0), ctypes.c_int64(max(end, 1))
    if end and libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    os.nice(19)
    sys.exit(0 if pack_run(Path(sys.argv[1])) else NOTHING)
