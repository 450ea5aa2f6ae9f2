"""What the kernel says: memory of the machine and of a control group, and when a process started."""

from __future__ import annotations

import os
from typing import NamedTuple

from sonde.guard import pass_on

ROOT = "/sys/fs/cgroup"
NO_LIMIT = 2**60  # version 1 writes a number near 2**63 where there is no limit
# Version 2 and version 1: the limit, what is used with all files that were read, and what of it are such files.
FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)


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


def usage(pid: int) -> Usage | None:
    """Limit and use of the control group of the process that has the least room; None without a limit."""
    found = [one for folder in _folders(pid) if (one := _read(folder)) is not None]
    return min(found, key=_room, default=None)


def room(pid: int) -> int | None:
    """How many bytes a process may still take, before somebody runs out of memory; None where that is not known."""
    return min((_room(one) for one in (ram(), usage(pid)) if one is not None), default=None)


def _room(one: Usage) -> int:
    return one.limit - one.used


def _folders(pid: int) -> list[str]:
    """The folders of the groups of a process, from its own up to the top one."""
    folders: list[str] = []
    for line in (text(f"/proc/{pid}/cgroup") or "").splitlines():
        _, controllers, path = (line + "::").split(":")[:3]
        top = ROOT if controllers == "" else os.path.join(ROOT, "memory") if "memory" in controllers.split(",") else ""
        folder = os.path.normpath(top + path)
        while top and folder.startswith(top):
            folders.append(folder)
            folder = os.path.dirname(folder)
    return folders


def _read(folder: str) -> Usage | None:
    for limit, used, files in FILES:
        most, now = (_number(text(os.path.join(folder, name))) for name in (limit, used))
        if most is not None and now is not None and most < NO_LIMIT:
            known = numbers(os.path.join(folder, "memory.stat"))
            return Usage(most, max(0, now - sum(known.get(name, 0) for name in files)))
    return None


def _number(text: str | None) -> int | None:
    """None also for "max": no limit."""
    return int(text) if text is not None and text.strip().isdigit() else None


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; with the pid it names a process for good. None: not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError) as error:
        pass_on(error)
        return None
