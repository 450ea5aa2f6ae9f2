"""A file that is written while the program runs: it must not be mistaken for another, and a full disk must not raise."""

from __future__ import annotations

import errno
import os

from sonde.guard import pass_on

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]


class File:
    """A descriptor, and the file it stood for when we got it.

    A program that closes all descriptors and opens others must never find our bytes in its files.
    """

    __slots__ = ("fd", "identity", "path")

    def __init__(self, fd: int, path: str | None = None) -> None:
        """With `path`, it is opened again after such a program."""
        self.fd = fd
        self.path = path
        self.identity = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self.fd)
        except (OSError, OverflowError) as error:
            pass_on(error)
            return None
        return found.st_dev, found.st_ino

    def is_ours(self) -> bool:
        """Does the descriptor still stand for that file?"""
        if self.fd < 0 or self.identity is None:
            return False
        return self._look() == self.identity or (self.path is not None and self._reopen(self.path))

    def _reopen(self, path: str) -> bool:
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            pass_on(error)
            return False
        self.fd, before = fd, self.fd
        if self._look() == self.identity:
            return True
        os.close(fd)
        self.fd = before
        return False

    def size(self) -> int:
        """How long the file is; 0 if it is not ours any more."""
        return os.fstat(self.fd).st_size if self.is_ours() else 0

    def write(self, *pieces: tuple[bytes | memoryview, int]) -> bool:
        """Write data, each at its offset: all, or False. A short write stays where it is: the length that counts does not grow."""
        if not self.is_ours():
            return False
        try:
            for data, offset in pieces:
                if not _within_limit(offset + len(data)) or os.pwrite(self.fd, data, offset) != len(data):
                    return False
        except OSError as error:
            pass_on(error)
            return False
        return True

    def allocate(self, offset: int, size: int) -> bool:
        """Take the room on disk; a full disk then fails here, instead of killing the program with SIGBUS later."""
        if not self.is_ours() or not _within_limit(offset + size):
            return False
        try:
            os.posix_fallocate(self.fd, offset, size)
        except AttributeError:  # macOS
            return self.write((bytes(size), offset))
        except OSError as error:
            pass_on(error)
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return self.write((bytes(size), offset))
            return False
        return True

    def close(self) -> None:
        """Close it, if it is ours to close."""
        self.path = None
        if self.is_ours():
            os.close(self.fd)
        self.fd = -1


def _within_limit(end: int) -> bool:
    """Past the file-size limit a write raises SIGXFSZ, which kills a program that set its default action."""
    if resource is None:
        return True
    limit: int = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit < 0 or end <= limit  # -1: there is none
