"""What is read for one item, or outside of all items, and the records of it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from sonde.events import core
from sonde.probes.files import kernel
from sonde.probes.files.descriptors import open_files
from sonde.probes.files.paths import size_of
from sonde.store.probe import FILE, IO, READ
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from sonde.probes.files.kernel import Counted

MOST_KNOWN = 65_536  # files whose number is remembered
MOST_OUTSIDE = 64  # files outside of items, before their records are written
# Native code has read at most this many times the size of the only file that it can be, and this much more: else it was another one.
PLAUSIBLE, ROOM = 1.1, 65_536


class FileReads:
    """What was read of one file."""

    __slots__ = ("bytes", "calls", "disk", "known", "native", "ns", "opens", "size", "unseen")

    def __init__(self, size: int | None) -> None:
        self.opens = self.calls = self.bytes = self.ns = 0
        self.size = size
        self.known = True  # how long it took: native code is not timed
        self.native = False
        self.unseen = False  # something may have been read that nothing counts
        self.disk: int | None = None


class ItemReads:
    """The files of one item. `key` and `position`: of its batch, and in it; None: not known, or outside of items."""

    def __init__(
        self, key: int | None = None, position: int | None = None, since: Counted | None = None, *, inside: bool = True
    ) -> None:
        self.key, self.position = key, position
        self.files: dict[str | None, FileReads] = {}  # None: of a file whose name is not known
        self.native: str | None = None  # the file that native code reads now
        self.wrapped_bytes = self.wrapped_calls = 0  # counted by readers since `since`
        self.since = since or (kernel.counted(process.counts) if inside else None)
        self.first = self.since
        self.step = core.get_context()[0]

    def tally(self, path: str | None, size: int | None = None) -> FileReads:
        """What is known of this file; a new one may have this size."""
        found = self.files.get(path)
        if found is None:
            found = self.files[path] = FileReads(size)
        elif found.size is None:
            found.size = size
        return found

    def opened(self, path: str, size: int | None = None) -> None:
        """Python opens this file."""
        self.flush()
        self.native = None
        self.tally(path, size).opens += 1

    def read(self, path: str, size: int, ns: int) -> None:
        """A reader has read this much."""
        tally = self.tally(path)
        tally.bytes += size
        tally.calls += 1
        tally.ns += ns
        self.wrapped_bytes += size
        self.wrapped_calls += 1

    def taken(self, path: str) -> None:
        """Native code gets the descriptor of this file."""
        self.flush()
        self.native = path
        if self.since is None:  # outside of items, or the kernel does not count
            self.tally(path).unseen = True

    def map(self, path: str) -> None:
        """The file is mapped into memory: what is read of it then is not seen."""
        self.tally(path).unseen = True

    def flush(self) -> None:
        """Give what the kernel has counted beyond the readers to the file that native code read."""
        if self.since is None:
            return
        now = kernel.counted(process.counts)
        if now is None:
            return
        beyond = now.bytes - self.since.bytes - self.since.own - self.wrapped_bytes
        calls = now.calls - self.since.calls - 1 - self.wrapped_calls
        self.since, self.wrapped_bytes, self.wrapped_calls = now, 0, 0
        if beyond > 0:
            self._give(self.native, beyond, max(1, calls))

    def _give(self, path: str | None, size: int, calls: int) -> None:
        tally = self.tally(path)
        tally.bytes += size
        tally.calls += calls
        tally.native, tally.known = True, False

    def end(self) -> Counted | None:
        """Write the records; returns the last counts, at which the next item may begin."""
        self.flush()
        unnamed = self.files.pop(None, None)
        if unnamed is not None:
            self._name(unnamed)
        if len(self.files) == 1 and self.first is not None and self.since is not None:
            next(iter(self.files.values())).disk = self.since.disk - self.first.disk
        for path, tally in self.files.items():
            if (
                path is None or tally.bytes or tally.size is not None or size_of(path) is not None
            ):  # not a folder, or nothing
                write(self, path, tally)
        return self.since

    def _name(self, unnamed: FileReads) -> None:
        """Find out which file native code has read: the only one that fits, or that is open; else it stays without a name."""
        opened = [(path, tally.size) for path, tally in self.files.items() if path is not None]
        if len(opened) != 1:
            opened = [(path, size_of(descriptor)) for path, descriptor in open_files().items()]
        if len(opened) == 1:
            [(path, size)] = opened
            known = self.files.get(path)
            read = unnamed.bytes + (0 if known is None else known.bytes)
            if size is not None and read <= PLAUSIBLE * size + ROOM:
                self.tally(path, size)
                self._give(path, unnamed.bytes, unnamed.calls)
                return
        self.files[None] = unnamed


class _ProcessFiles:
    """The files of this process."""

    def __init__(self) -> None:
        self.on = False
        self.counts = kernel.THREAD
        self.forget()

    def forget(self) -> None:
        self.known: dict[str, int] = {}  # the numbers of files, in the records
        self.next = 0
        self.reading: ItemReads | None = None  # of the item that a loader worker is making, whatever thread reads
        self.outside: dict[int, ItemReads] = {}  # by thread

    def in_child(self) -> None:
        """After a fork: the parent's files are named in its own records only, and what it was reading is its business."""
        self.forget()
        thread.reading = None


class _Thread(threading.local):
    reading: ItemReads | None = None
    opening = False  # Python's own function is at work


process = _ProcessFiles()
thread = _Thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.in_child)


def begin_worker() -> None:
    """In a loader worker, whatever its threads read is for the item that is being made."""
    process.counts = kernel.PROCESS


def here() -> ItemReads:
    """What this thread is reading for: an item, or none."""
    return thread.reading or process.reading or _outside()


def _outside() -> ItemReads:
    """What is read outside of items in this step."""
    ident = threading.get_ident()
    found = process.outside.get(ident)
    if found is not None and (found.step != core.get_context()[0] or len(found.files) >= MOST_OUTSIDE):
        del process.outside[ident]
        found.end()
        found = None
    if found is None:
        found = process.outside[ident] = ItemReads(inside=False)
    return found


def write_outside() -> None:
    """Write the records of what was read outside of items."""
    for ident in list(process.outside):
        process.outside.pop(ident).end()


def begin(key: int | None, position: int | None, since: Counted | None = None) -> None:
    """An item begins, in this thread. `since`: the counts at which the one before has ended."""
    thread.reading = reading = ItemReads(key, position, since=since)
    if process.counts == kernel.PROCESS:
        process.reading = reading


def end() -> Counted | None:
    """The item is made. Returns the counts now; None: there was none, or they are not known."""
    reading, thread.reading = thread.reading, None
    if process.reading is reading:
        process.reading = None
    return None if reading is None else reading.end()


def write(reading: ItemReads, path: str | None, tally: FileReads) -> None:
    """The record of one file in an item."""
    facts: dict[str, Any] = {"opens": tally.opens, "calls": tally.calls}
    if path is not None:
        facts["file"] = _number(path, tally.size)
    if reading.position is not None:
        facts["position"] = reading.position
    if tally.bytes or not tally.unseen:
        facts["bytes"] = tally.bytes
    if tally.known and not tally.unseen:
        facts["ns"] = tally.ns
    if tally.native:
        facts["native"] = True
    if tally.disk is not None:
        facts["disk"] = tally.disk
    core.mark(READ, IO, key=reading.key, args=facts, level=DETAIL)


def _number(path: str, size: int | None) -> int:
    number = process.known.get(path)
    if number is None:
        if len(process.known) >= MOST_KNOWN:
            process.known.clear()  # those that come again get another number
        number = process.known[path] = process.next
        process.next += 1
        core.mark(FILE, IO, key=number, args={"path": path, "size": size_of(path) if size is None else size})
    return number
