"""A control group with little memory for one program, where the machine allows to make one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
PATIENCE = 5.0  # seconds, for the last process to leave


class Group(NamedTuple):
    """A control group: the files that say its limit and what is used, and the one that takes a process in."""

    limit: Path
    used: Path
    processes: Path


@contextmanager
def group(megabytes: int | None) -> Iterator[Group | None]:
    """A new group; None without a limit. OSError: none can be made here."""
    if megabytes is None:
        yield None
        return
    old = (ROOT / "memory").is_dir()
    folder = (ROOT / "memory" if old else ROOT) / f"faults-{os.getpid()}"
    folder.mkdir()
    try:
        limit = folder / ("memory.limit_in_bytes" if old else "memory.max")
        limit.write_text(str(megabytes * 2**20))
        with suppress(OSError):
            (folder / "memory.swappiness").write_text("0")
        yield Group(limit, folder / ("memory.usage_in_bytes" if old else "memory.current"), folder / "cgroup.procs")
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
