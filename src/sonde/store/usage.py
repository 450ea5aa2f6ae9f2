"""What all processes of a run count together: its bytes, for the size cap, and the records of those that have no folder.

A file of two numbers of 64 bits, read and written at each spill; a process with a full disk can still write there. Two
processes that count at the same moment may lose one of the two numbers: the cap is not exact to the byte.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from sonde.store.descriptor import File
from sonde.store.file import RegularFile
from sonde.store.folder import USAGE_FILE

if TYPE_CHECKING:
    from pathlib import Path

BYTES, HOMELESS = 0, 1  # which number
_NUMBER = struct.Struct("<Q")


class RunUsage:
    """The counts of a run; without its file (-1), those of this process."""

    def __init__(self, fd: int) -> None:
        """Take the descriptor over."""
        self._file = File(fd)
        self.known = [0, 0]  # what stood there last: from which a file counts on that somebody has cut

    def add(self, which: int, more: int) -> bool:
        """Add to a count; False: only here, not in the file."""
        place = which * _NUMBER.size
        try:
            found = os.pread(self._file.fd, _NUMBER.size, place) if self._file.is_ours() else b""
        except OSError:
            found = b""
        before = _NUMBER.unpack(found)[0] if len(found) == _NUMBER.size else self.known[which]
        self.known[which] = count = min(max(before + more, 0), 2**64 - 1)
        return self._file.write((_NUMBER.pack(count), place))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def homeless(run: str | Path) -> int:
    """How many records the processes of a run have made that could not get a folder."""
    return _read(run, HOMELESS)


def recorded(run: str | Path) -> int:
    """How many bytes the processes of a run have recorded."""
    return _read(run, BYTES)


def _read(run: str | Path, which: int) -> int:
    try:
        with RegularFile(os.path.join(run, USAGE_FILE)) as file:
            content = file.read(_NUMBER.size, which * _NUMBER.size)
    except OSError:
        return 0
    return int.from_bytes(content, "little")
