"""What the kernel tells in files: their text, and the memory of the machine."""

from __future__ import annotations

from typing import NamedTuple

from sonde.guard import pass_on


class Usage(NamedTuple):
    """How much there is, and what is used of it; bytes. Files that were only read are not in use: they go when there is need."""

    limit: int
    used: int


def text(path: str) -> str | None:
    """A file of the kernel; None where there is none, or it may not be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        pass_on(error)
        return None


def numbers(path: str) -> dict[str, int]:
    """A file with a name and a number on each line; other lines are left out."""
    lines = (line.split() for line in (text(path) or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def ram() -> Usage | None:
    """The memory of the machine."""
    found = numbers("/proc/meminfo")  # in kB
    if "MemTotal" not in found or "MemAvailable" not in found:
        return None
    return Usage(found["MemTotal"] * 1024, (found["MemTotal"] - found["MemAvailable"]) * 1024)
