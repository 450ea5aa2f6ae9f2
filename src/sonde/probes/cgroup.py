"""The memory that the control group of a process may use: in a container or a job, less than the machine has."""

from __future__ import annotations

import os
from typing import NamedTuple

ROOT = "/sys/fs/cgroup"
NO_LIMIT = 2**60  # version 1 writes a number near 2**63 where there is no limit


class Usage(NamedTuple):
    """The tightest limit above a process, and what is used of it; bytes."""

    limit: int
    used: int


def usage(pid: int) -> Usage | None:
    """Limit and use of the tightest control group that the process is in; None without a limit."""
    found = [one for folder in _folders(pid) if (one := _read(folder)) is not None]
    return min(found, key=lambda one: one.limit, default=None)


def _folders(pid: int) -> list[str]:
    """The folders of the groups of a process, from its own up to the top one."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    folders: list[str] = []
    for line in lines:
        _, controllers, path = (line + "::").split(":")[:3]
        top = ROOT if controllers == "" else os.path.join(ROOT, "memory") if "memory" in controllers.split(",") else ""
        folder = os.path.normpath(top + path)
        while top and folder.startswith(top):
            folders.append(folder)
            folder = os.path.dirname(folder)
    return folders


def _read(folder: str) -> Usage | None:
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most, now = _number(os.path.join(folder, limit)), _number(os.path.join(folder, used))
        if most is not None and now is not None and most < NO_LIMIT:
            return Usage(most, now)
    return None


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="utf-8") as file:
            return int(file.read(32))
    except (OSError, ValueError):  # also "max": no limit
        return None
