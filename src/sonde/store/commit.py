"""Reads which git commit is checked out, from the files of the repository and without running git."""

from __future__ import annotations

import os
import re
import stat

MAX_LEVELS = 64
MAX_BYTES = 4 * 2**20  # of packed-refs; the other files are one line
_HASH = r"[0-9a-f]{40}([0-9a-f]{24})?"


def commit_of(folder: str) -> str | None:
    """The commit checked out in the repository around a folder; None if there is no repository, or no commit yet."""
    git = _git_folder(folder)
    if git is None:
        return None
    head = _read(os.path.join(git, "HEAD"))
    if not head.startswith("ref:"):
        return _hash(head)
    ref = head[4:].strip()
    if not ref.startswith("refs/") or ".." in ref:
        return None
    # A worktree has its own HEAD; branches lie in the repository that it belongs to.
    common = os.path.join(git, _read(os.path.join(git, "commondir")).strip() or ".")
    return _hash(_read(os.path.join(git, ref))) or _hash(_read(os.path.join(common, ref))) or _packed(common, ref)


def _git_folder(folder: str) -> str | None:
    for _ in range(MAX_LEVELS):
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        link = _read(path)  # a worktree or a submodule: a file that says where the folder is
        if link.startswith("gitdir:"):
            return os.path.join(folder, link[7:].strip())
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return None


def _packed(common: str, ref: str) -> str | None:
    for line in _read(os.path.join(common, "packed-refs"), MAX_BYTES).splitlines():
        value, _, name = line.partition(" ")
        if name == ref:
            return _hash(value)
    return None


def _hash(text: str) -> str | None:
    text = text.strip()
    return text if re.fullmatch(_HASH, text) else None


def _read(path: str, limit: int = 4096) -> str:
    """The beginning of a plain file as text; empty if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not to hang on a named pipe
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return os.read(fd, limit).decode("utf-8", "replace")
        finally:
            os.close(fd)
    except (OSError, ValueError):  # a ValueError: a path with a NUL in it
        return ""
