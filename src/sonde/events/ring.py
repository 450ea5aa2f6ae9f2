"""Rings and files of the Python core: where records go, how they leave a ring, and how losses are counted.

This is `native/ring.h` in Python. One `Recording` lives from `begin()` to `end()` (or to a fork) and owns the files of
one process folder; each thread that records has a `Lane` in it, which holds its ring. A lane is written by its own
thread without a lock; everything that touches a file happens under the recording's lock.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from sonde.events._core import Host

# Places in the header, counted in its 64-bit words and in its 32-bit words.
NEXT_SEQ, SEG_LEN, ARGS_LEN, LOST_SPACE, LOST_CAP, LOST_RING, LOST_ARGS = 3, 4, 5, 8, 9, 10, 11
RINGS, STEP, EPOCH = 5, 12, 13
# Places in a ring's head, in 64-bit words.
HEAD, SPILLED = 0, 1

RETRY_OPEN_S = 1.0
RETRY_RING_S = 0.1
WAIT_S = 2.0  # for another thread that opens the process folder
LAST_ARGS_ID = 2**32 - 1
LAST_SEQ = 2**32 - 2**20  # from here on nothing is taken: far enough from the end for what is already on its way
MOST_BLOBS = 1024  # encoded arguments that are remembered, so that equal ones are written once

# Maps that must not be closed, because their descriptor's number may belong to the user by now.
_kept: list[mmap.mmap] = []


class Files(NamedTuple):
    """Descriptors of one process folder, opened by the host; the core owns them from then on."""

    rings: int
    seg: int
    args: int
    names: int
    usage: int


class Lane:
    """One thread's part of a recording: its ring, and the innermost of its open spans."""

    __slots__ = ("claim", "head", "limit", "loose", "ordinal", "recording", "retry_at", "tasks", "top", "view", "words")

    def __init__(self, recording: Recording, tasks: bool) -> None:
        self.recording = recording
        self.tasks = tasks  # an event loop runs in this thread
        self.top: Any = None
        self.loose: dict[int, Any] = {}  # open frames that were entered while a loop ran here, oldest first
        self.ordinal = 0
        self.retry_at = 0.0
        self.head = 0  # the index of the next record
        self.claim = 0  # records below this one are in the file, or on their way to it
        self.limit = 0  # the first index for which the ring has no slot; 0 without a ring
        self.view = memoryview(b"")  # the ring by bytes
        self.words = memoryview(b"")  # the ring by signed 64-bit words

    def use(self, view: memoryview, head: int) -> None:
        """Take over a ring whose records have all been spilled."""
        self.view = view
        self.words = view.cast("q")
        self.head = self.claim = head
        self.limit = head + RING_RECORDS

    def block(self, first: int, count: int) -> bytes:
        """The records from index `first` on, with their head, as they go to the file."""
        head = RECORD.pack(BLOCK_MAGIC, first, count, self.ordinal, 0, 0, 0, 0, 0, BLOCK, 0)
        start = RING_HEAD_BYTES + first % RING_RECORDS * RECORD_SIZE
        end = start + count * RECORD_SIZE
        if end <= RING_HEAD_BYTES + RING_RECORDS * RECORD_SIZE:
            return head + self.view[start:end]
        rest = end - RING_RECORDS * RECORD_SIZE
        return head + self.view[start : RING_HEAD_BYTES + RING_RECORDS * RECORD_SIZE] + self.view[RING_HEAD_BYTES:rest]


class _Departure:
    """Lies in a thread's local storage; when the thread ends it dies, and gives the ring free."""

    __slots__ = ("lane",)

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def __del__(self) -> None:
        self.lane.recording.free.append(self.lane)


class Recording:
    """What `begin()` starts and `end()` ends: the files of this process, its rings, its counts."""

    def __init__(self, host: Host, cap: int, names: list[tuple[str, str]], context: tuple[int, int]) -> None:
        self.host = host
        self.cap = cap
        self.names = names  # of the whole process; id - 1 -> (cat, name)
        self.token = object()  # replaced when any shared arguments change, so that spans encode theirs anew
        self.local = threading.local()
        self.innermost: Any = None  # the ContextVar of the innermost frame, made when a loop first runs
        self.next_seq = 1  # the number of the next record; also in the header, at all times
        self.level = DETAIL  # records of a level above this are not taken
        self.lock = threading.RLock()
        self.busy = False  # a file is being written; a signal handler or finalizer may come back here meanwhile
        self.equipping = False
        self.door = threading.RLock()  # held while the host opens the folder, which may take its time
        self.opening = False
        self.closed = False
        self.retry_at = 0.0
        self.files: tuple[File, File, File, File] | None = None  # rings, seg, args, names
        self.maps: list[mmap.mmap] = []
        self.mapped = False
        self.lanes: list[Lane] = []
        self.free: list[Lane] = []
        self.spare: list[memoryview] = []
        self.threads = 0
        self.named = 0
        self.names_len = 0
        self.pending = b""
        self.blobs: dict[bytes, int] = {}
        self.usage = memoryview(bytearray(8)).cast("Q")
        self.page_done = False
        self._head_with(memoryview(bytearray(HEADER_BYTES)))
        self.page[:8] = RINGS_MAGIC
        struct.pack_into("<III", self.page, 8, FORMAT_VERSION, RECORD_SIZE, RING_BYTES)
        self.counts[NEXT_SEQ] = self.next_seq
        self.counts[ARGS_LEN] = len(ARGS_MAGIC)
        self.set_context(*context)

    def _head_with(self, page: memoryview) -> None:
        self.page, self.counts, self.smalls = page, page.cast("Q"), page.cast("I")

    def set_context(self, step: int, epoch: int) -> None:
        self.smalls[STEP] = step
        self.smalls[EPOCH] = 0xFFFFFFFF if epoch == 0xFFFF else epoch

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

    def use_bytes(self, count: int) -> None:
        """Count bytes against the cap of the run, and decide what is still taken."""
        self.usage[0] = total = min(self.usage[0] + count, 2**64 - 1)
        share = total / self.cap if self.cap > 0 else 0.0
        if share >= 1.0 or self.next_seq > LAST_SEQ:
            self.level = -1
        else:
            self.level = ESSENTIAL if share >= THIN_NORMAL else NORMAL if share >= THIN_DETAIL else DETAIL

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
            files = self.host.open()
            if files is None:
                self.retry_at = monotonic() + RETRY_OPEN_S
                return False
            rings, seg, args, names, usage = files
            with self.lock:
                self._map_usage(usage)
                self.use_bytes(0)
                self.mapped = rings >= 0
                self.files = (File(rings), File(seg), File(args), File(names))
        finally:
            self.opening = False
        self.note(b"")
        return True

    def _map_usage(self, fd: int) -> None:
        if fd < 0:
            return
        file = File(fd)
        page = self._map(file, 0, 8)
        if page is not None:
            self.usage = page.cast("Q")
        file.close()

    def _map(self, file: File, offset: int, size: int) -> memoryview | None:
        over = offset % mmap.ALLOCATIONGRANULARITY
        # Without this option (before Python 3.13) each map keeps a descriptor of its own.
        options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        try:
            pages = mmap.mmap(file.fd, size + over, offset=offset - over, **options)
        except (OSError, ValueError):
            return None
        self.maps.append(pages)
        return memoryview(pages)[over:]

    def _place_page(self) -> bool:
        """The header begins in plain memory, and moves to the file as soon as the disk has room for it."""
        if self.page_done or not self.mapped:
            return True
        assert self.files is not None
        rings = self.files[0]
        page = self._map(rings, 0, HEADER_BYTES) if rings.allocate(0, HEADER_BYTES) else None
        if page is None:
            return False
        counts, smalls = page.cast("Q"), page.cast("I")
        # No call from here to the switch: what a signal handler counted in between would stay in the page that is left.
        page[8:] = self.page[8:]
        page[:8] = self.page[:8]
        self.page, self.counts, self.smalls = page, counts, smalls
        self.counts[NEXT_SEQ] = self.next_seq
        self.page_done = True
        self.use_bytes(HEADER_BYTES)
        return True

    # ── threads and their rings ──────────────────────────────────────────────────────────────────────────────────────

    def new_lane(self, tasks: bool) -> Lane:
        lane: Lane = self.local.__dict__.setdefault("lane", Lane(self, tasks))  # a signal handler may have been quicker
        return lane

    def make_room(self, lane: Lane) -> bool:
        """Give the lane of this thread a free slot: from its first ring, or by spilling the older half."""
        if lane.limit:
            return self.spill(lane, SPILL_RECORDS) and lane.head < lane.limit
        if monotonic() < lane.retry_at or not self.ready():
            return False
        with self.lock:
            if lane.limit:  # a signal handler was quicker
                return True
            if self.busy or self.equipping or self.closed:  # the first two: we are inside of one of them already
                return False
            self.equipping = True
            try:
                done = self._equip(lane)
            finally:
                self.equipping = False
        if not done:
            lane.retry_at = monotonic() + RETRY_RING_S
        return done

    def _equip(self, lane: Lane) -> bool:
        head = 0
        if self.free:
            left = self.free.pop()
            self.spill(left, RING_RECORDS)
            self.lanes.remove(left)
            view, head = left.view, left.head
        elif not (self._place_page() and self._add_rings()):
            return False
        else:
            view = self.spare.pop()
        self.threads += 1
        lane.ordinal = self.threads
        tid = threading.get_native_id()
        self.note(self.host.thread_line(lane.ordinal, tid))
        struct.pack_into("<Q", view, 24, tid)
        struct.pack_into("<I", view, 16, lane.ordinal)
        lane.use(view, head)
        self.lanes.append(lane)
        self.local.departure = _Departure(lane)
        return True

    def _add_rings(self) -> bool:
        """One ring at first; where there are many threads, several at once, because each map costs a descriptor."""
        if self.spare:
            return True
        have = self.smalls[RINGS]
        count = max(1, have // 4) if self.mapped else 1
        if self.mapped:
            assert self.files is not None
            rings, offset, size = self.files[0], HEADER_BYTES + have * RING_BYTES, count * RING_BYTES
            area = self._map(rings, offset, size) if rings.allocate(offset, size) else None
            if area is None:
                return False
            self.use_bytes(size)
        else:
            area = memoryview(bytearray(RING_BYTES))
        self.spare = [area[i * RING_BYTES : (i + 1) * RING_BYTES] for i in reversed(range(count))]
        self.smalls[RINGS] = have + count
        return True

    # ── writing files ────────────────────────────────────────────────────────────────────────────────────────────────

    def spill(self, lane: Lane, most: int) -> bool:
        """Move the oldest records of a ring to events.seg; False only if that is going on already, further out."""
        with self.lock:
            if self.busy:
                return False
            self.busy = True
            try:
                self._spill(lane, most)
            finally:
                self.busy = False
        return True

    def _spill(self, lane: Lane, most: int) -> None:
        first = lane.claim
        count = min(most, lane.head - first)
        if count <= 0 or self.files is None:
            return
        self._write_pending()
        lane.claim = first + count  # before the copy: who completes a record after it was copied sees this
        data = lane.block(first, count)
        if self.files[1].write(data, self.counts[SEG_LEN]):
            self.counts[SEG_LEN] += len(data)
            self.use_bytes(len(data))
        else:
            self.counts[LOST_SPACE] += count
        lane.words[SPILLED] = first + count
        lane.limit = first + count + RING_RECORDS

    def note(self, line: bytes) -> None:
        """Write a line and all new names to names.jsonl. What cannot be written now waits for the next time."""
        with self.lock:
            self.pending += line
            if self.busy or self.files is None:
                return
            self.busy = True
            try:
                self._write_pending()
            finally:
                self.busy = False

    def _write_pending(self) -> None:
        lines = [self.pending]
        while self.named < len(self.names):
            cat, name = self.names[self.named]
            self.named += 1
            lines.append(self.host.name_line(self.named, cat, name))
        self.pending = data = b"".join(lines)
        if data and self.files is not None and self.files[3].write(data, self.names_len):
            self.names_len += len(data)
            self.pending = self.pending[len(data) :]

    def blob(self, data: bytes) -> int:
        """Write encoded arguments; their id, or 0 if they could not be written (counted)."""
        if not self.ready():
            return 0
        with self.lock:
            known = self.blobs.get(data)
            if known is not None:
                return known
            if self.busy:
                self.counts[LOST_ARGS] += 1
                return 0
            self.busy = True
            try:
                return self._blob(data)
            finally:
                self.busy = False

    def _blob(self, data: bytes) -> int:
        offset = self.counts[ARGS_LEN]
        whole = struct.pack("<I", len(data)) + data
        whole += bytes(-len(whole) % ARGS_ALIGN)
        if offset // ARGS_ALIGN > LAST_ARGS_ID or self.files is None or not self.files[2].write(whole, offset):
            self.counts[LOST_ARGS] += 1
            return 0
        self.counts[ARGS_LEN] = offset + len(whole)
        self.use_bytes(len(whole))
        if len(self.blobs) >= MOST_BLOBS:
            self.blobs.clear()
        self.blobs[data] = offset // ARGS_ALIGN
        return offset // ARGS_ALIGN

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Spill every ring."""
        with self.lock:
            for lane in list(self.lanes):
                self.spill(lane, RING_RECORDS)

    def close(self) -> None:
        """Spill every ring, and let go of the files."""
        with self.lock:
            if self.files is not None:
                self.note(b"")
            self.flush()
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are; what a forked child does with those of its parent."""
        files = self.files or ()
        if not all(file.is_ours() for file in files if file.fd >= 0):
            _kept.extend(self.maps)
        for file in files:
            file.close()
        self.files = None
        self.closed = True
        # Without what refers to them the maps go at once, and with them their descriptors.
        self.local = threading.local()
        for lane in self.lanes:
            lane.top, lane.loose = None, {}
        self.lanes, self.free, self.spare, self.maps = [], [], [], []
        self._head_with(memoryview(bytearray(self.page)))
        self.usage = memoryview(bytearray(self.usage)).cast("Q")
