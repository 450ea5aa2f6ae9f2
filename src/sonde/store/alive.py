"""Tells whether the process that wrote a folder still runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.store.folder import boot_id, host

if TYPE_CHECKING:
    from sonde.store.card import Info

RUNNING = "running"
ENDED = "ended"
DIED = "died"
UNKNOWN = "unknown"


def state_of(info: Info) -> str:
    """running, ended (it said so), died (it did not), or unknown (it ran on another host).

    A launcher counts as running as long as the program that it started.
    """
    if info.end is not None:
        return ENDED
    if info.host != host() or info.pid is None:
        return UNKNOWN
    here = boot_id()
    if info.boot_id and here and info.boot_id != here:
        return DIED
    if _runs(info.pid, info.start_ticks):
        return RUNNING
    # A launcher that was killed leaves its program, which may not have recorded anything yet: the run is not over.
    return RUNNING if info.program is not None and _runs(info.program, info.program_ticks) else DIED


def _runs(pid: int, start_ticks: int | None) -> bool:
    """Whether the process with this id is there and is the same one (ids are used again)."""
    if start_ticks is None:
        return _exists(pid)
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    fields = content.rpartition(b")")[2].split()  # behind the command, which may hold anything
    return len(fields) > 19 and fields[0] not in (b"Z", b"X") and fields[19] == str(start_ticks).encode()


def _exists(pid: int) -> bool:
    if not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
