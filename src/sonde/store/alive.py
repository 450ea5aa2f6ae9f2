"""Whether the process that wrote a folder still runs, or went on as another program."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from sonde.store.folder import boot_id, host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sonde.store.process import Info

RUNNING = "running"
ENDED = "ended"
DIED = "died"
UNKNOWN = "unknown"
LAUNCHER = "launcher"  # the role
NEVER = (2**62, 0)  # a moment after all others
REPLACED = "replaced"  # the reason of an end
TERMINATED = "terminated"  # the same: by the process that had started it, which ended well itself


def state_of(info: Info) -> str:
    """running, ended (it said so), died (it did not), or unknown (it ran on another host)."""
    if info.end is not None:
        return ENDED
    if info.host != host() or info.pid is None:
        return UNKNOWN
    return RUNNING if _booted(info) and _runs(info.pid, info.start_ticks) else DIED


def running(info: Info) -> int | None:
    """The id of the process that keeps the run of this one going; None: nobody does, as far as is known here.

    That is itself, or of a launcher that was killed the program that it left, which may not have recorded anything yet.
    """
    state = state_of(info)
    if state == RUNNING:
        return info.pid
    left = state == DIED and _booted(info) and info.program is not None and _runs(info.program, info.program_ticks)
    return info.program if left else None


def is_alive(info: Info) -> bool:
    """Whether a process of this host still runs, also after it has recorded its end: others at exit may come later."""
    return info.pid is not None and _booted(info) and _runs(info.pid, info.start_ticks)


def outcome(found: Iterable[tuple[Info, str]]) -> str:
    """The state of a run of which no process runs any more, by its roots, each with its state: ended, died or unknown."""
    top = [state for _, state in roots(found)]
    return next((state for state in (DIED, UNKNOWN, ENDED) if state in top), UNKNOWN)


def roots(found: Iterable[tuple[Info, str]]) -> list[tuple[Info, str]]:
    """The processes that no other process of the run started; they stand for what they started.

    A launcher does not, unless the program that it started ended well: it ends properly whatever becomes of that. Then it stands
    for all of its host, also for what others than Python started, such as the workers of Ray.
    """
    known = list(found)
    done = {info.host for info, _ in known if info.role == LAUNCHER and info.program_exit == 0}
    done -= _failed_hosts([info for info, _ in known if info.role == LAUNCHER and info.program is not None])
    parents = {(info.host, info.pid) for info, _ in known if info.role != LAUNCHER or info.program_exit == 0}
    return [
        (info, state)
        for info, state in known
        if ((info.host, info.parent_pid) not in parents or info.parent_pid == info.pid)
        and (info.host not in done or info.role == LAUNCHER)
    ]


def _failed_hosts(launchers: Sequence[Info]) -> set[str]:
    """Hosts on which one of several launchers that were started together, as by `srun`, had a program that failed."""
    first: dict[str, Info] = {}
    for info in launchers:
        known = first.setdefault(info.host, info)
        if (info.start or NEVER) < (known.start or NEVER):
            first[info.host] = info
    return {
        info.host for info in launchers if info.parent_pid == first[info.host].parent_pid and info.program_exit != 0
    }


def resolve_replaced(infos: Sequence[Info]) -> list[Info]:
    """What processes say, and the end of those that could not record it: another program took their place (os.exec).

    Such a program records into a folder of its own; for the kernel it is the same process, begun at the same time.
    """
    same: dict[object, list[tuple[int, int]]] = {}
    for place, info in enumerate(infos):
        if info.start is not None and info.pid is not None and info.start_ticks is not None:
            key = (info.host, info.boot_id, info.pid, info.start_ticks)
            same.setdefault(key, []).append((info.start.mono_ns, place))
    found = list(infos)
    for places in same.values():
        for (began, earlier), (next_began, later) in pairwise(sorted(places)):
            if found[earlier].end is None and began < next_began:
                found[earlier] = found[earlier]._replace(end=infos[later].start, reason=REPLACED)
    return found


def _booted(info: Info) -> bool:
    """Whether the host was not started again since; also if nobody knows."""
    here = boot_id()
    return not (info.boot_id and here and info.boot_id != here)


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
