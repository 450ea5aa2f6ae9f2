"""A file that is written while the program runs: it must not be mistaken for another, and a full disk must not raise."""

from __future__ import annotations

import errno
import os

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]


class File:
    """A descriptor, and the file it stood for when we got it.

    A program that closes all descriptors and opens others must never find our bytes in its files.
    """

    __slots__ = ("fd", "identity")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.identity = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self.fd)
        except (OSError, OverflowError):
            return None
        return found.st_dev, found.st_ino

    def is_ours(self) -> bool:
        """Does the descriptor still stand for that file?"""
        return self.fd >= 0 and self.identity is not None and self._look() == self.identity

    def write(self, data: bytes, offset: int) -> bool:
        """All of it, or False. A short write stays where it is: the length that counts does not grow."""
        if not self.is_ours() or not _within_limit(offset + len(data)):
            return False
        try:
            return os.pwrite(self.fd, data, offset) == len(data)
        except OSError:
            return False

    def allocate(self, offset: int, size: int) -> bool:
        """Take the room on disk; a full disk then fails here, instead of killing the program with SIGBUS later."""
        if not self.is_ours() or not _within_limit(offset + size):
            return False
        try:
            os.posix_fallocate(self.fd, offset, size)
        except AttributeError:  # macOS
            return self.write(bytes(size), offset)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return self.write(bytes(size), offset)
            return False
        return True

    def close(self) -> None:
        """Close it, if it is ours to close."""
        if self.is_ours():
            os.close(self.fd)
        self.fd = -1


def _within_limit(end: int) -> bool:
    """Past the file-size limit a write raises SIGXFSZ, which kills a program that set its default action."""
    if resource is None:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit == resource.RLIM_INFINITY or end <= limit
