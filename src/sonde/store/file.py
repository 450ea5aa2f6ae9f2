"""Opens untrusted files: regular files only, never through a link, never blocking."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class RegularFile:
    """A regular file, open for reading at any place. Anything else in its place is an OSError."""

    __slots__ = ("fd", "owner", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.fd = os.open(path, _FLAGS)  # O_NONBLOCK: opening a pipe must not wait for its writer
        status = os.fstat(self.fd)
        self.owner = status.st_uid
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "is not a regular file", str(path))

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self.fd).st_size

    def read(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only where the file ends."""
        count = min(count, self.size() - offset)
        pieces: list[bytes] = []
        while count > 0:
            piece = os.pread(self.fd, count, offset)
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fill(self, buffer: memoryview, offset: int) -> int:
        """Read into `buffer`; the number of bytes that the file had for it."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self.fd, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def close(self) -> None:
        """Close the file; harmless when it is closed already."""
        fd, self.fd = self.fd, -1  # first: another thread may come while it is closed
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_small(path: Path, limit: int) -> bytes:
    """The content of a file that has at most `limit` bytes; a larger one is an OSError."""
    with RegularFile(path) as file:
        if file.size() > limit:
            raise OSError(errno.EFBIG, f"has {file.size()} bytes, over the maximum of {limit}", str(path))
        return file.read(limit, 0)


def why(error: OSError) -> str:
    """The reason of an OSError, as the end of a sentence about the file."""
    if error.errno == errno.ENOENT:
        return "is missing"
    if error.errno == errno.ELOOP:
        return "is a symbolic link"
    return (error.strerror or str(error)).lower()
