"""Cuts a run into parts of similar size: each holds some ranks with their loader workers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.owners import owners
from sonde.store import record
from sonde.store.folder import RINGS_FILE, SEGMENT_FILE, host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sonde.analysis.records.load import Offsets
    from sonde.store.process import Info

EVENTS = 1 << 20  # of a part, unless a single rank has more
PROCESSES = 512  # of a part at most: each costs some milliseconds


class Part(NamedTuple):
    """What one call of `seal_part` has to do: plain values, so that it can be sent to another process or host.

    `owners`: for each loader worker the process that it loads for. `offsets`: what to add to the clock of each (host, boot).
    """

    name: str
    run: str
    processes: tuple[str, ...]
    owners: dict[str, str]
    offsets: Offsets


def plan(run: str, processes: Sequence[tuple[Path, Info]], offsets: Offsets, taken: set[str]) -> list[Part]:
    """The parts for these process folders. `taken`: names of parts that are there already."""
    owner = owners([{**info._asdict(), "process": folder.name} for folder, info in processes])
    # With the host in it: hosts that seal for themselves may later be one run.
    names = (name for number in itertools.count() if (name := f"{host()}-{number:04d}") not in taken)
    return [
        Part(name, run, some, {one: owner[one] for one in some if one in owner}, offsets)
        for name, some in zip(names, _parts(_groups(processes, owner)), strict=False)
    ]


def _groups(processes: Sequence[tuple[Path, Info]], owner: dict[str, str]) -> Iterator[tuple[list[str], int]]:
    """Processes that stay together, and how many records they have: workers with their owner, a program with its successor."""
    groups: dict[object, list[tuple[str, int]]] = {}
    group_of: dict[str, object] = {}
    for folder, info in processes:
        known = info.pid is not None and info.start_ticks is not None
        group_of[folder.name] = (info.host, info.boot_id, info.pid, info.start_ticks) if known else folder.name
    for folder, _ in processes:
        group = group_of[owner.get(folder.name, folder.name)]
        groups.setdefault(group, []).append((folder.name, _records(folder)))
    for some in groups.values():
        yield [name for name, _ in some], sum(count for _, count in some)


def _parts(groups: Iterator[tuple[list[str], int]]) -> Iterator[tuple[str, ...]]:
    held: list[str] = []
    events = 0
    for names, count in groups:
        if held and (events + count > EVENTS or len(held) + len(names) > PROCESSES):
            yield tuple(sorted(held))
            held, events = [], 0
        held += names
        events += count
    if held:
        yield tuple(sorted(held))


def _records(folder: Path) -> int:
    """About how many records a process folder has."""
    total = 0
    for name in (SEGMENT_FILE, RINGS_FILE):
        try:
            total += (folder / name).lstat().st_size
        except OSError:
            continue
    return total // record.RECORD_SIZE
