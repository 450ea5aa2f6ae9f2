"""What of a run folder is new since the last push, also while its processes write.

Of files that only grow, what counts of them is sent once: records behind `seg_len`, half a line of names and the like stay. What changes
all the time (rings, process.json, the head of a ledger) is sent anew by each push until its process has ended, as it was at one moment.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.remote.pack import FRESH, GONE, KEEP, is_sendable
from sonde.store import ledger, record
from sonde.store.alive import UNKNOWN, is_alive, resolve_replaced, state_of
from sonde.store.file import RegularFile
from sonde.store.folder import (
    ARGS_FILE,
    LEDGER_FILE,
    NAMES_FILE,
    PACKED_FILE,
    PROCESS_FILE,
    PULLED_FILE,
    RINGS_FILE,
    SEGMENT_FILE,
    host,
)
from sonde.store.packed import open_file
from sonde.store.process import Info, read_info, read_object
from sonde.store.reading.ledger import steady_page
from sonde.store.reading.reader import FILES, read_newest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sonde.store.reading.rings import Header, Rings

TRIES = 8  # to read the rings while nothing leaves them
WINDOW = 1 << 20
HEAD = " head"  # behind the name of a file: the part of it that changes
FINISHED = "finish"  # the reason of an end after which nothing is recorded
SKIPPED = (PULLED_FILE, "outcome.json")  # of this machine alone

Stamp = list[int]  # of a file: its number, size and time


@dataclass
class Sent:
    """What a place has of a file: bytes, their checksum, and of a file that was sent whole its stamp."""

    bytes: int = 0
    crc: int = 0
    stamp: Stamp | None = None


class FileRange(NamedTuple):
    """A range of a file that is to be sent: from `local`, or these bytes."""

    path: str
    begin: int
    end: int
    what: int
    local: Path | None = None
    content: bytes = b""
    stamp: Stamp | None = None

    def read(self, at: int, count: int) -> bytes:
        """Some of it; fewer bytes if the file has become shorter meanwhile."""
        if self.local is None:
            return self.content[at - self.begin : at - self.begin + count]
        with open_file(self.local) as file:
            return file.read(count, at)


@dataclass
class Changes:
    """What is new: `lasting` is sent once, `moving` with every push. `infos`: what the processes say of themselves."""

    lasting: list[FileRange] = field(default_factory=list)
    moving: list[FileRange] = field(default_factory=list)
    infos: dict[str, Info] = field(default_factory=dict)
    running: int = 0
    found: set[str] = field(default_factory=set)  # paths that are there
    over: dict[str, Stamp] = field(default_factory=dict)  # processes that have ended, with a stamp of their folder


def changes(run: Path, sent: dict[str, Sent], over: dict[str, Stamp], only: str | None = None) -> Changes:
    """Everything that is new in a run. `over`: process folders of which everything was sent; `only`: those of this host."""
    found = Changes()
    folders: list[tuple[str, Path]] = []
    for entry in sorted(os.scandir(run), key=lambda one: one.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if any((path / name).is_file() for name in FILES):
                folders.append((entry.name, path))
            elif not entry.name.startswith("."):
                _add_folder(found, sent, run, path, only)
        elif entry.is_file(follow_symlinks=False) and _is_root_file(entry.name, only):
            _add_whole(found, sent, entry.name, path)
    known: dict[str, list[str]] = {}
    for one in sent:
        known.setdefault(one.partition("/")[0], []).append(one)
    infos = resolve_replaced([read_info(path, []) for _, path in folders])
    for (name, path), info in zip(folders, infos, strict=True):
        if only is None or info.host == only:
            found.infos[name] = info
            if not _is_complete(found, over, name, path, info):
                _add_process(found, sent, name, path, info)
            else:
                found.found.update(known.get(name, ()))
    gone = [path for path in sent if path not in found.found and not path.endswith(HEAD)]
    found.lasting += [FileRange(path, 0, 0, GONE) for path in gone]
    return found


def _is_root_file(name: str, only: str | None) -> bool:
    mine = only is None or not name.startswith("stacks-") or f"-{only}-" in name
    return (not name.startswith(".") or name.startswith(".rank-")) and name not in SKIPPED and mine


def _add_folder(found: Changes, sent: dict[str, Sent], run: Path, folder: Path, only: str | None) -> None:
    """Files that are written once: dumps of the black box, sealed parts, values."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if only is not None and folder.name == "blackbox" and Path(place) == folder:
            folders[:] = [one for one in folders if f"-{only}-" in one]
        for name in sorted(names):
            path = Path(place) / name
            if not name.startswith("."):
                _add_whole(found, sent, path.relative_to(run).as_posix(), path)


def _add_whole(found: Changes, sent: dict[str, Sent], path: str, local: Path) -> None:
    stamp = stamp_of(local)
    if stamp is None or not is_sendable(path):
        return
    found.found.add(path)
    before = sent.get(path)
    if before is None or before.stamp != stamp:
        found.lasting.append(FileRange(path, 0, stamp[1], FRESH, local, stamp=stamp))


# ── one process ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_complete(found: Changes, over: dict[str, Stamp], name: str, folder: Path, info: Info) -> bool:
    """Whether a process has ended, and all of it was sent."""
    if not _has_ended(info):
        found.running += 1
        return False
    stamp = _folder_stamp(folder)
    if stamp is not None:
        found.over[name] = stamp
    return stamp is not None and over.get(name) == stamp


def _add_process(found: Changes, sent: dict[str, Sent], name: str, folder: Path, info: Info) -> None:
    growing = _Growing(found, sent, name, folder, _has_ended(info))
    header = None
    if info.writes != "block":
        rings, header = _rings(folder, info)
        growing.whole(RINGS_FILE, rings)
    growing.grow(SEGMENT_FILE, None if header is None else header.seg_len)
    growing.grow(ARGS_FILE, None if header is None else header.args_len)
    growing.names()
    growing.ledger()
    growing.whole(PROCESS_FILE, _description(folder))
    growing.others()


def _has_ended(info: Info) -> bool:
    """Whether nothing more comes of a process; of another host, as far as it says so itself."""
    if info.host != host():
        return state_of(info) != UNKNOWN
    return (info.end is not None and info.reason == FINISHED) or not is_alive(info)


class _Growing:
    """Looks at the files of one process."""

    def __init__(self, found: Changes, sent: dict[str, Sent], name: str, folder: Path, ended: bool) -> None:
        self._found, self._sent, self._name, self._folder, self._ended = found, sent, name, folder, ended

    def grow(self, name: str, end: int | None, begin: int = 0) -> None:
        """A file that only grows; `end`: what counts of it, None: all that is there."""
        local = self._folder / name
        stamp = stamp_of(local)
        if stamp is None:
            return
        path = f"{self._name}/{name}"
        self._found.found.add(path)
        before, what = self._sent.get(path) or Sent(begin), KEEP if path in self._sent else FRESH
        end = stamp[1] if end is None else min(end, stamp[1])
        if before.bytes > end or (self._ended and before.bytes > begin and not self._same(local, begin, before)):
            before, what = Sent(begin), FRESH
        if end > before.bytes or what == FRESH:
            self._found.lasting.append(FileRange(path, before.bytes, max(end, before.bytes), what, local))

    def _same(self, local: Path, begin: int, before: Sent) -> bool:
        """Whether what was sent is still what stands there: a full disk may have let it be written twice."""
        crc = 0
        with open_file(local) as file:
            for at in range(begin, before.bytes, WINDOW):
                crc = zlib.crc32(file.read(min(WINDOW, before.bytes - at), at), crc)
        return crc == before.crc

    def names(self) -> None:
        """Whole lines."""
        local = self._folder / NAMES_FILE
        stamp = stamp_of(local)
        if stamp is None:
            return
        end = stamp[1]
        with RegularFile(local) as file:
            tail = file.read(WINDOW, max(0, end - WINDOW))
        if not self._ended and not tail.endswith(b"\n"):
            end -= len(tail) - tail.rfind(b"\n") - 1
        self.grow(NAMES_FILE, end)

    def ledger(self) -> None:
        """The head and the buffer change; entries behind them stay."""
        local = self._folder / LEDGER_FILE
        if stamp_of(local) is None:
            return
        with RegularFile(local) as file:
            page, (_, length, *_) = steady_page(file)
        self.grow(LEDGER_FILE, ledger.DATA + length, ledger.DATA)
        self.whole(LEDGER_FILE, page, LEDGER_FILE + HEAD)

    def whole(self, name: str, content: bytes | None, called: str | None = None) -> None:
        """A small file that changes until its process has ended. `called`: what a part of a file is remembered as."""
        if content is None:
            return
        path, key = f"{self._name}/{name}", f"{self._name}/{called or name}"
        self._found.found |= {path, key}
        what = KEEP if called else FRESH
        stamp = [zlib.crc32(content), len(content), 0]
        before = self._sent.get(key)
        if not self._ended:
            self._found.moving.append(FileRange(path, 0, len(content), what, content=content))
        elif before is None or before.stamp != stamp:
            self._found.lasting.append(FileRange(path, 0, len(content), what, content=content, stamp=stamp))

    def others(self) -> None:
        """Files that other parts of Sonde wrote: values, traces."""
        known = (RINGS_FILE, SEGMENT_FILE, PACKED_FILE, ARGS_FILE, NAMES_FILE, LEDGER_FILE, PROCESS_FILE)
        for place, folders, names in os.walk(self._folder):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for name in sorted(names):
                local = Path(place) / name
                if not name.startswith(".") and not (Path(place) == self._folder and name in known):
                    path = f"{self._name}/{local.relative_to(self._folder).as_posix()}"
                    _add_whole(self._found, self._sent, path, local)


def _description(folder: Path) -> bytes | None:
    """process.json, as it is right where the rings lie beside it."""
    notes: list[str] = []
    fields = read_object(folder / PROCESS_FILE, notes)
    return None if notes else json.dumps(fields | {"rings": None}, indent=1).encode()


def _rings(folder: Path, info: Info) -> tuple[bytes | None, Header | None]:
    """The rings of a process as a file of their own, of one moment: no record has left them since they were read."""
    found = read_newest(folder, info, [])
    for _ in range(TRIES):
        before, found = found, read_newest(folder, info, [])
        if found.header is None or (before.header is not None and before.header.seg_len == found.header.seg_len):
            break
    return (None, None) if found.header is None else (_file_of(found, found.header), found.header)


def _file_of(rings: Rings, header: Header) -> bytes:
    """A rings file that holds these records. What was recorded while they were read stays for the next push."""
    known = rings.records["seq"] < header.next_seq
    parts: list[bytes] = []
    for thread in np.unique(rings.threads[known]).tolist():
        mine = rings.records[known & (rings.threads == thread)]
        owner = rings.owners.get(thread)
        for first in range(0, len(mine), record.RING_RECORDS):
            some = mine[first : first + record.RING_RECORDS]
            head = {"head": len(some), "spilled": 0, "owner": thread, "tid": (owner.tid if owner else None) or 0}
            parts.append(record.ring(head, some.tobytes()))
    fields: dict[str, int | bytes] = {
        "rings": len(parts),
        "next_seq": header.next_seq,
        "seg_len": header.seg_len,
        "args_len": header.args_len,
        "step": record.NO_STEP if header.step is None else header.step,
        "epoch": record.NO_EPOCH if header.epoch is None else header.epoch,
        **{f"lost_{reason}": count for reason, count in header.lost.items()},
    }
    return record.header_page(fields) + b"".join(parts)


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a regular file does; None if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns] if stat.S_ISREG(status.st_mode) else None


def _folder_stamp(folder: Path) -> Stamp | None:
    """What changes when a process folder does whose process has ended."""
    found = stamp_of(folder / PROCESS_FILE)
    return None if found is None else [found[0], found[1], found[2] ^ folder.stat().st_mtime_ns]


def pieces_of(change: FileRange, size: int) -> Iterator[tuple[int, bytes]]:
    """The content of a change in pieces: (where it begins, bytes). One at least, since a file may be empty."""
    at = change.begin
    while True:
        content = change.read(at, min(size, change.end - at))
        yield at, content
        at += len(content)
        if at >= change.end or not content:
            return
