"""Rings and files of the Python core: where records go, how they leave a ring, and how losses are counted.

This is `native/ring.h` in Python. One `Recording` lives from `begin()` to `end()` (or to a fork) and owns the files of
one process folder; each thread that records has a `ThreadRing` in it, which holds its ring in plain memory. Each record is
written to the file at once; C maps the file instead, but Python could not survive a file that is truncated under a map.
A signal handler or a finalizer may record while one of these functions runs: what it records stays in the ring, and
whoever was at it writes it.
"""

from __future__ import annotations

import struct
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.store import usage
from sonde.store.descriptor import File
from sonde.store.record import (
    ARGS_ALIGN,
    ARGS_MAGIC,
    BLOCK,
    BLOCK_MAGIC,
    DETAIL,
    ESSENTIAL,
    FORMAT_VERSION,
    HEADER_BYTES,
    NORMAL,
    RECORD,
    RECORD_SIZE,
    RING_BYTES,
    RING_HEAD_BYTES,
    RING_RECORDS,
    RINGS_MAGIC,
    SPILL_RECORDS,
    THIN_DETAIL,
    THIN_NORMAL,
)

if TYPE_CHECKING:
    from sonde.native.core import Host

# Places in the header, counted in its 64-bit words and in its 32-bit words, and where its fields end.
NEXT_SEQ, SEG_LEN, ARGS_LEN, LOST_SPACE, LOST_CAP, LOST_RING, LOST_ARGS = 3, 4, 5, 8, 9, 10, 11
RINGS, STEP, EPOCH = 5, 12, 13
FIELDS_END = 96
# Places in a ring's head, in 64-bit words.
HEAD, SPILLED = 0, 1

LOST = -2  # in place of the index of a record
RETRY_OPEN_S = 1.0
RETRY_RING_S = 0.1
WAIT_S = 2.0  # for another thread that opens the process folder
REPORT_BYTES = 32 * 1024
MOST_EARLY = 2**20  # bytes of arguments that wait for their file
LAST_ARGS_ID = 2**32 - 1
LAST_SEQ = 2**32 - 2**20  # from here on nothing is taken: far enough from the end for what is already on its way
MOST_BLOBS = 1024  # encoded arguments that are remembered, so that equal ones are written once

# As RECORD, in the machine's own byte order and alignment (which are the same on every machine this runs on), because
# that packs whole words. The layout has no padding either way. A counter has a float in place of the duration.
_pack = struct.Struct("@QqqIIIIIHBB").pack_into


class Files(NamedTuple):
    """Descriptors of one process folder, opened by the host; the core owns them from then on."""

    rings: int
    seg: int
    args: int
    names: int


class ThreadRing:
    """One thread's part of a recording: its ring, and the innermost of its open spans."""

    __slots__ = (
        "claim", "head", "limit", "loose", "ordinal", "place", "ready", "recording", "retry_at", "tasks", "tid", "top", "view", "words",
        "written",
    )  # fmt: skip

    def __init__(self, recording: Recording, tasks: bool) -> None:
        self.recording = recording
        self.tasks = tasks  # an event loop runs in this thread
        self.top: Any = None
        self.loose: dict[int, Any] = {}  # open frames that were entered while a loop ran here, oldest first
        self.tid = threading.get_native_id()
        self.ordinal = 0
        self.place: int | None = None  # of the ring in its file
        self.ready = False  # the folder is open, and the ring has its place, if it is to have one
        self.retry_at = 0.0
        self.head = 0  # the index of the next record
        self.claim = 0  # records below this one are in events.seg, or on their way to it
        self.written = 0  # records below this one are in the file of the rings
        self.limit = RING_RECORDS  # the first index for which the ring has no slot
        self.view = memoryview(bytearray(RING_BYTES))  # the ring by bytes
        self.words = self.view.cast("q")  # the ring by signed 64-bit words

    def records(self, first: int, count: int) -> list[tuple[memoryview, int]]:
        """The records from index `first` on, in one piece or two, and where in the ring each is."""
        start = RING_HEAD_BYTES + first % RING_RECORDS * RECORD_SIZE
        straight = min(count, RING_RECORDS - first % RING_RECORDS) * RECORD_SIZE
        rest = RING_HEAD_BYTES + count * RECORD_SIZE - straight
        pieces = [(self.view[start : start + straight], start)]
        return pieces if rest == RING_HEAD_BYTES else [*pieces, (self.view[RING_HEAD_BYTES:rest], RING_HEAD_BYTES)]

    def block(self, first: int, count: int) -> bytes:
        """The same with their head, as they go to events.seg."""
        head = RECORD.pack(BLOCK_MAGIC, first, count, self.ordinal, 0, 0, 0, 0, 0, BLOCK, 0)
        return b"".join((head, *(piece for piece, _ in self.records(first, count))))


class _Departure:
    """Lies in a thread's local storage; when the thread ends it dies, and gives the ring free."""

    __slots__ = ("ring",)

    def __init__(self, ring: ThreadRing) -> None:
        self.ring = ring

    def __del__(self) -> None:
        self.ring.recording.free.append(self.ring)


class Recording:
    """What `begin()` starts and `end()` ends: the files of this process, its rings, its counts."""

    def __init__(
        self,
        host: Host,
        cap: int,
        names: list[tuple[str, str]],
        context: tuple[int, int],
        counts: usage.RunUsage | None = None,
    ) -> None:
        self.host = host
        self.cap = cap
        self.names = names  # of the whole process; id - 1 -> (cat, name)
        self.token = object()  # replaced when any shared arguments change, so that spans encode theirs anew
        self.local = threading.local()
        self.innermost: Any = None  # the ContextVar of the innermost frame, made when a loop first runs
        self.next_seq = 1  # the number of the next record; also in the header, at all times
        self.level = DETAIL  # records of a level above this are not taken
        self.lock = threading.RLock()
        self.busy = False  # events.seg or names.jsonl is being written
        self.equipping = False
        self.door = threading.RLock()  # held while the host opens the folder, which may take its time
        self.opening = False
        self.closed = False
        self.retry_at = 0.0
        self.files: tuple[File, File, File, File] | None = None  # rings, seg, args, names
        self.mapped = False  # as C calls it: each record is in a file when it has been made
        self.thread_rings: list[ThreadRing] = []
        self.free: list[ThreadRing] = []  # of threads that have ended
        self.threads = 0
        self.named = 0
        self.names_len = 0
        self.pending = b""
        self.early = bytearray()  # arguments, until there is a file for them
        self.blobs: dict[bytes, int] = {}
        self.usage = counts  # of the run; None: not asked for yet
        self.used = self.unreported = 0
        self.homeless = 0  # records of this process that are counted in `usage` as having no folder
        self.page = memoryview(bytearray(HEADER_BYTES))
        self.counts, self.smalls = self.page.cast("Q"), self.page.cast("I")
        self.page[:8] = RINGS_MAGIC
        struct.pack_into("<III", self.page, 8, FORMAT_VERSION, RECORD_SIZE, RING_BYTES)
        self.counts[NEXT_SEQ] = self.next_seq
        self.counts[ARGS_LEN] = len(ARGS_MAGIC)
        self.set_context(*context)

    def set_context(self, step: int, epoch: int) -> None:
        self.smalls[STEP] = step
        self.smalls[EPOCH] = 0xFFFFFFFF if epoch == 0xFFFF else epoch
        self._write_rings()

    # ── sequence numbers and losses ──────────────────────────────────────────────────────────────────────────────────

    def take_seq(self) -> int:
        """Give out a number; whoever writes its record, or loses it, publishes it in the header.

        No call, so no other thread or signal handler, comes between its two steps.
        """
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def lose(self, why: int) -> None:
        """Count a record that was not taken; its number shows as a gap."""
        with self.lock:
            self.counts[why] += 1
            self.counts[NEXT_SEQ] = self.next_seq
            self._write_rings()

    def use_bytes(self, count: int) -> None:
        """Count bytes against the cap of the run, and decide what is still taken."""
        self.unreported += count
        if self.unreported >= REPORT_BYTES:
            self._report_bytes()
        share = (self.used + self.unreported) / self.cap if self.cap > 0 else 0.0
        if share >= 1.0 or self.next_seq > LAST_SEQ:
            self.level = -1
        else:
            self.level = ESSENTIAL if share >= THIN_NORMAL else NORMAL if share >= THIN_DETAIL else DETAIL

    def _report_bytes(self) -> None:
        more, self.unreported = self.unreported, 0
        counts = self._run_counts()
        counts.add(usage.BYTES, more)
        self.used = counts.known[usage.BYTES]

    def _run_counts(self) -> usage.RunUsage:
        if self.usage is None:
            self.usage = usage.RunUsage(self.host.usage())
        return self.usage

    def _report_homeless(self) -> None:
        """A process that has no folder tells the run how many records it has made."""
        now = 0 if self.files is not None else self.next_seq - 1
        before, self.homeless = self.homeless, now
        if now != before:
            self._run_counts().add(usage.HOMELESS, now - before)

    # ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> bool:
        """Is the process folder open? If not, ask the host for it, at most once a second."""
        if self.files is not None:
            return True
        if self.closed or monotonic() < self.retry_at or not self.door.acquire(timeout=WAIT_S):
            return False
        try:
            # Looked at again: another thread may have opened it while we waited, or we may be inside of it already.
            return self.is_open() or (not self.opening and self._open())
        finally:
            self.door.release()

    def is_open(self) -> bool:
        return self.files is not None

    def _open(self) -> bool:
        self.opening = True
        try:
            self._run_counts()
            files = self.host.open()
            if files is None:
                self.retry_at = monotonic() + RETRY_OPEN_S
                return False
            with self.lock:
                self._start(*(File(fd) for fd in files))
        finally:
            self.opening = False
        self.note(b"")
        for ring in list(self.thread_rings):
            self.equip(ring)
        self._report_homeless()
        return True

    def _start(self, rings: File, seg: File, args: File, names: File) -> None:
        self.mapped = rings.fd >= 0
        if self.early and not args.write((bytes(self.early), len(ARGS_MAGIC))):
            self.counts[LOST_ARGS] += 1
        self.use_bytes(HEADER_BYTES + len(self.early))
        self.early = bytearray()
        if self.mapped:
            rings.allocate(0, HEADER_BYTES)
        self.files = rings, seg, args, names
        self._write_rings()

    # ── threads and their rings ──────────────────────────────────────────────────────────────────────────────────────

    def new_ring(self, tasks: bool) -> ThreadRing:
        ring: ThreadRing = self.local.__dict__.setdefault(
            "ring", ThreadRing(self, tasks)
        )  # a signal handler may have been quicker
        if ring not in self.thread_rings:
            self.thread_rings.append(ring)
            self.local.departure = _Departure(ring)
        return ring

    def put(self, ring: ThreadRing, *fields: int) -> int:
        """Write a record into the next slot; its index, or LOST if there is no slot (which is not counted here).

        A signal handler, or a finalizer during garbage collection, may record something in between. It can come only after
        a call: so the slot is chosen immediately before it is written, and taken only if it was not taken since.
        """
        while True:
            index = ring.head
            if index < ring.limit:
                _pack(ring.view, index % RING_RECORDS * RECORD_SIZE + RING_HEAD_BYTES, *fields)
                if ring.head == index:
                    ring.words[HEAD] = ring.head = index + 1
                    self.counts[NEXT_SEQ] = self.next_seq
                    self.publish(ring)
                    return index
            elif not self.spill(ring, SPILL_RECORDS) or ring.head >= ring.limit:
                return LOST

    def change(self, ring: ThreadRing, index: int, *fields: int) -> None:
        """Write a record of the ring again, in its place."""
        place = index % RING_RECORDS * RECORD_SIZE + RING_HEAD_BYTES
        _pack(ring.view, place, *fields)
        if ring.place is not None:
            with self.lock:
                if self.files is not None:
                    self.files[0].write((ring.view[place : place + RECORD_SIZE], ring.place + place))

    def publish(self, ring: ThreadRing) -> None:
        """Write the new records of a ring to its file."""
        if not ring.ready:
            self.equip(ring)
        elif ring.place is not None:
            with self.lock:
                first, ring.written = ring.written, ring.head
                done = self._write_rings(*self._content(ring, first), (ring.view[:16], ring.place))
                if not done and self.files is not None:
                    self._count_stray(ring.written - first)

    def _count_stray(self, count: int) -> None:
        """The program has closed our files, and so nobody else counts these records."""
        if not self._run_counts().add(usage.HOMELESS, count):
            self.usage = usage.RunUsage(self.host.usage())
            self.usage.add(usage.HOMELESS, count)

    def _content(self, ring: ThreadRing, first: int) -> list[tuple[memoryview, int]]:
        assert ring.place is not None
        first = max(first, ring.claim)
        return [(piece, ring.place + at) for piece, at in ring.records(first, ring.head - first)]

    def _write_rings(self, *pieces: tuple[memoryview, int]) -> bool:
        """Write these pieces, and the header after them."""
        files = self.files  # another thread may end the recording
        return self.mapped and files is not None and files[0].write(*pieces, (self.page[:FIELDS_END], 0))

    def equip(self, ring: ThreadRing) -> None:
        """Give a ring its place in the file, and its thread a name."""
        if monotonic() < ring.retry_at or not self.ready():
            if self.files is None and not self.opening and not self.closed:
                self._report_homeless()
            return
        with self.lock:
            if ring.ready or self.equipping or self.closed:
                return
            self.equipping = True
            try:
                ring.ready = self._equip(ring)
                if not ring.ready:
                    ring.retry_at = monotonic() + RETRY_RING_S
            finally:
                self.equipping = False

    def _equip(self, ring: ThreadRing) -> bool:
        if not ring.ordinal:
            self.threads += 1
            ring.ordinal = self.threads
            struct.pack_into("<IIQ", ring.view, 16, ring.ordinal, 0, ring.tid)
            self.note(self.host.thread_line(ring.ordinal, ring.tid))
        if not self.mapped:
            self.smalls[RINGS] += 1
            return True
        place = self._leftover() or self._new_place()
        if place is None:
            return False
        ring.place = place
        self._write_ring(ring)
        return True

    def _write_ring(self, ring: ThreadRing) -> None:
        """Write all of a ring: records first, for its head says which count."""
        assert ring.place is not None
        ring.written = ring.head
        self._write_rings(*self._content(ring, ring.claim), (ring.view[:RING_HEAD_BYTES], ring.place))

    def _leftover(self) -> int | None:
        """The place of a ring whose thread has ended."""
        for left in [ring for ring in self.free if ring.place is not None]:
            self.free.remove(left)
            self.spill(left, RING_RECORDS)
            self.thread_rings.remove(left)
            return left.place
        return None

    def _new_place(self) -> int | None:
        assert self.files is not None
        place = HEADER_BYTES + self.smalls[RINGS] * RING_BYTES
        if not self.files[0].allocate(place, RING_BYTES):
            return None
        self.smalls[RINGS] += 1
        self.use_bytes(RING_BYTES)
        return place

    # ── writing files ────────────────────────────────────────────────────────────────────────────────────────────────

    def spill(self, ring: ThreadRing, most: int) -> bool:
        """Move the oldest records of a ring to events.seg; False only if that is going on already, further out."""
        with self.lock:
            if self.busy:
                return False
            self.busy = True
            try:
                self._spill(ring, most)
            finally:
                self.busy = False
        return True

    def _spill(self, ring: ThreadRing, most: int) -> None:
        first = ring.claim
        count = min(most, ring.head - first)
        if count <= 0:
            return
        ring.claim = first + count  # before the copy: who completes a record after it was copied sees this
        data = ring.block(first, count)
        ring.limit = first + count + RING_RECORDS
        while self._write_pending():
            pass
        if self.files is not None and self.files[1].write((data, self.counts[SEG_LEN])):
            self.counts[SEG_LEN] += len(data)
            self.use_bytes(len(data))
        else:
            self.counts[LOST_SPACE] += count
        ring.words[SPILLED] = first + count
        if ring.place is not None and self.files is not None:
            self._mend()
            self._write_rings((ring.view[:16], ring.place))

    def _mend(self) -> None:
        """Another program may have truncated the rings: what they held is still here."""
        assert self.files is not None
        end = HEADER_BYTES + self.smalls[RINGS] * RING_BYTES
        if self.files[0].size() < end and self.files[0].allocate(0, end):
            for ring in self.thread_rings:
                if ring.place is not None:
                    self._write_ring(ring)

    def note(self, line: bytes) -> None:
        """Write a line and all new names to names.jsonl. What cannot be written now waits for the next time."""
        with self.lock:
            self.pending += line
            if self.busy:
                return
            self.busy = True
            try:
                while self._write_pending():
                    pass
            finally:
                self.busy = False

    def _write_pending(self) -> bool:
        """Write what waits; True: something was written, and more may wait by now."""
        if self.files is None:
            return False
        lines = [self.pending]
        while self.named < len(self.names):
            cat, name = self.names[self.named]
            self.named += 1
            lines.append(self.host.name_line(self.named, cat, name))
        self.pending = data = b"".join(lines) + self.pending[len(lines[0]) :]
        if not data or not self._append_names(data):
            return False
        self.names_len += len(data)
        self.pending = self.pending[len(data) :]
        return True

    def _append_names(self, data: bytes) -> bool:
        return self.files is not None and self.files[3].write((data, self.names_len))

    def blob(self, data: bytes) -> int:
        """Write encoded arguments; their id, or 0 if they could not be written (counted)."""
        self.ready()
        with self.lock:
            known = self.blobs.get(data)
            return self._blob(data) if known is None else known

    def _blob(self, data: bytes) -> int:
        size = 4 + len(data)
        size += -size % ARGS_ALIGN
        whole = struct.pack("<I", len(data)) + data.ljust(size - 4, b"\0")
        offset = self.counts[ARGS_LEN]
        self.counts[ARGS_LEN] = offset + size  # at once: what is written in between has another place
        if offset // ARGS_ALIGN > LAST_ARGS_ID or not self._write_args(whole, offset):
            self.counts[LOST_ARGS] += 1
            return 0
        if len(self.blobs) >= MOST_BLOBS:
            self.blobs.clear()
        self.blobs[data] = offset // ARGS_ALIGN
        return offset // ARGS_ALIGN

    def _write_args(self, whole: bytes, offset: int) -> bool:
        if self.files is not None:
            self.use_bytes(len(whole))
            return self.files[2].write((whole, offset))
        if len(self.early) + len(whole) > MOST_EARLY:
            return False
        self.early += whole
        return True

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def is_waiting(self) -> bool:
        """Is there a record that a kill would lose?"""
        return any(ring.place is None and ring.head > ring.claim for ring in self.thread_rings)

    def flush(self) -> None:
        """Spill every ring."""
        if self.files is None and self.next_seq > 1:
            self.retry_at = 0.0  # a last try, whenever the one before it was
            self.ready()
        with self.lock:
            if self.files is None:
                return
            for ring in list(self.thread_rings):
                self.equip(ring)
                self.spill(ring, RING_RECORDS)
            self._report_bytes()

    def close(self) -> None:
        """Spill every ring, and let go of the files."""
        with self.lock:
            self.note(b"")
            self.flush()
            self.abandon()
            if self.usage is not None:
                self.usage.close()

    def abandon(self) -> None:
        """Let go of the files as they are; what a forked child does with those of its parent."""
        files, self.files = self.files or (), None
        for file in files:
            file.close()
        self.closed = True
        self.local = threading.local()
        for ring in self.thread_rings:
            ring.top, ring.loose = None, {}
        self.thread_rings, self.free = [], []
