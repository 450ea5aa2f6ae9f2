"""The ledger of a process: which items went into which batch, for the whole run. Its layout, and how it is written.

`docs/store.md` describes the file. An entry is written into a buffer in the file's mapped beginning, which costs no call of
the system and is safe from a kill; a full buffer goes behind it with one write. `entries.py` reads it.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
from array import array
from typing import TYPE_CHECKING

from sonde.store.descriptor import File

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"sondeLG1"
HEAD_BYTES = 4096
BUFFER_BYTES = 64 * 1024
DATA = HEAD_BYTES + BUFFER_BYTES  # where the entries begin that have left the buffer
# Places in the head, in 64-bit words: bytes behind DATA that count; where in them the buffer's content belongs (elsewhere
# than at their end: it is there already); batches that could not be written, and those that were beyond the size cap.
LENGTH, BASE, LOST_SPACE, LOST_CAP = 1, 2, 3, 4
WORDS = 5

# An entry: code, flags, worker (-1: none), number of items, key of the batch; then what the code says.
ENTRY = struct.Struct("<BBhIq")
RANGE = 1  # the first number, 8 bytes: the others follow it one by one
U16, U32, I64 = 2, 3, 4  # each number
TEXT = 5  # the length of a text, 4 bytes, and the text: the keys as a JSON list, as far as there was room
DIGEST = 6  # 8 bytes: what the batch held
RECIPE = 7  # as many bytes as it says items: earlier versions noted how an order was made; readers pass it by
WIDTHS = {U16: "H", U32: "I", I64: "q"}
FIRST = struct.Struct("<q")
SIZE = struct.Struct("<I")
HASH = struct.Struct("<Q")

# Flags of a batch.
STREAM = 1  # the dataset is iterable: the numbers count what it gave, from 0 in each worker and round
ALONE = 2  # the loader makes no batches: it asks for one item, or for a list of them, and takes what comes
# Flag of a digest.
WHOLE = 1  # of everything in the batch; else of a sample of it

MOST_RECIPE = 1 << 16  # bytes
MOST_ITEMS = 2**28  # of one batch
MOST_REMEMBERED = 1024
WAIT_S = 1.0
BLOCK_ROOM = 4096  # without a mapping, a kill loses at most so much

_RANGED = struct.Struct(ENTRY.format + "q")
_HASHED = struct.Struct(ENTRY.format + "Q")
_LOADER_SHIFT = 44
USED, ROOM, BATCHES, BUSY = range(
    4
)  # of a writer's state: bytes in its buffer, bytes that it may hold, batches in it, at work
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1

# Maps that must not be closed, because their descriptor's number may belong to the user by now.
_kept: list[mmap.mmap] = []


class Packer:
    """Makes entries. Remembers for each loader how wide its numbers are."""

    __slots__ = ("_forms", "_widths")

    def __init__(self) -> None:
        self._forms: dict[tuple[int, int], struct.Struct] = {}
        self._widths: dict[int, int] = {}

    def batch(self, key: int, items: tuple[object, ...], worker: int | None = None, flags: int = 0) -> bytes | None:
        """The entry of a batch; None if not all items are numbers of 64 bits."""
        count = len(items)
        if worker is None or worker > 0x7FFF:
            worker = -1
        first = _first_of_range(items)
        if first is not None:
            return _RANGED.pack(RANGE, flags, worker, count, key, first)
        loader = key >> _LOADER_SHIFT
        for code in range(self._widths.get(loader, U16), TEXT):
            try:
                return self._form(code, count).pack(code, flags, worker, count, key, *items)
            except struct.error:
                self._remember(loader, code + 1)
        return None

    def _form(self, code: int, count: int) -> struct.Struct:
        form = self._forms.get((code, count))
        if form is None:
            if len(self._forms) >= MOST_REMEMBERED:
                self._forms.clear()
            form = self._forms[code, count] = struct.Struct(f"{ENTRY.format}{count}{WIDTHS[code]}")
        return form

    def _remember(self, loader: int, code: int) -> None:
        if len(self._widths) >= MOST_REMEMBERED:
            self._widths.clear()
        self._widths[loader] = code


def _first_of_range(items: tuple[object, ...]) -> int | None:
    """The first of numbers that follow each other; None if they do not."""
    if not items:
        return 0
    first, last = items[0], items[-1]
    if type(first) is not int or type(last) is not int or last - first != len(items) - 1:
        return None
    return first if items == tuple(range(first, last + 1)) and first >= _LOWEST and last <= _HIGHEST else None


def pack_text(key: int, count: int, text: bytes, worker: int | None = None, flags: int = 0) -> bytes:
    """The entry of a batch whose items have keys that are no numbers."""
    head = ENTRY.pack(TEXT, flags, -1 if worker is None or worker > 0x7FFF else worker, count, key)
    return head + SIZE.pack(len(text)) + text


def pack_digest(key: int, digest: int, *, whole: bool) -> bytes:
    """The entry that says what a batch held."""
    return _HASHED.pack(DIGEST, WHOLE if whole else 0, -1, 0, key, digest)


class Writer:
    """The ledger of this process, open for writing. What cannot be written is counted in its head."""

    def __init__(self, fd: int, take: Callable[[int], bool], *, mapped: bool = True) -> None:
        """Takes over the descriptor of a new file. `take` asks whether the run may grow by so many bytes.

        Without `mapped` the buffer lies in plain memory, and is written out often.
        """
        self._file = File(fd)
        self._take = take
        self._map = self._mapped() if mapped else None
        page = memoryview(self._map or bytearray(DATA))
        self._head = page[:HEAD_BYTES].cast("Q")
        self.buffer = page[HEAD_BYTES:]
        # C writes into the buffer too (`put_quickly` in native/ledger.h): while there is room, and nobody else is at it.
        self.state = array("q", [0, BUFFER_BYTES if self._map is not None else BLOCK_ROOM, 0, 0])
        self._lock = threading.Lock()
        page[: len(MAGIC)] = MAGIC
        self._take(DATA)

    def put(self, entry: bytes, batches: int = 1) -> None:
        """Add an entry, which stands for so many batches."""
        # With a limit: the thread that has it may be this one, in a signal handler. Without waiting it is quicker.
        if not self._lock.acquire(False) and not self._lock.acquire(timeout=WAIT_S):
            self._head[LOST_SPACE] += batches
            return
        state = self.state
        state[BUSY] = 1
        try:
            if len(entry) > state[ROOM] - state[USED] and not self._make_room(entry, batches):
                return
            start = state[USED]
            end = start + len(entry)
            self.buffer[start + 1 : end] = entry[1:]
            self.buffer[start] = entry[0]  # last: from now on it counts
            state[USED] = end
            state[BATCHES] += batches
        finally:
            state[BUSY] = 0
            self._lock.release()

    def flush(self) -> None:
        """Write out what a mapping would have kept."""
        if self._map is None and self._lock.acquire(timeout=WAIT_S):
            self.state[BUSY] = 1
            try:
                self._spill()
            finally:
                self.state[BUSY] = 0
                self._lock.release()

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file as it is; what a forked child does with that of its parent."""
        self.state[ROOM] = self.state[USED] = self.state[BATCHES] = 0  # first: C knows where the buffer is
        if self._map is not None and not self._file.is_ours():
            _kept.append(self._map)
        self._file.close()
        self._head, self.buffer, self._map = memoryview(bytearray(HEAD_BYTES)).cast("Q"), memoryview(b""), None

    def _mapped(self) -> mmap.mmap | None:
        # Without this option (before Python 3.13) each map keeps a descriptor of its own.
        options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        try:
            return mmap.mmap(self._file.fd, DATA, **options) if self._file.allocate(0, DATA) else None
        except (OSError, ValueError):
            return None

    def _make_room(self, entry: bytes, batches: int) -> bool:
        """Empty the buffer. An entry that is larger than it goes straight into the file: False."""
        if self.state[USED]:
            self._spill()
        if len(entry) <= self.state[ROOM]:
            return True
        self._append(entry, batches)
        self._head[BASE] = self._head[LENGTH]
        self._write_head()
        return False

    def _spill(self) -> None:
        used = self.state[USED]
        if not used:
            return
        self._append(bytes(self.buffer[:used]), self.state[BATCHES])
        self.buffer[:used] = bytes(used)
        self._head[BASE] = self._head[LENGTH]  # after that: until now the buffer did not count
        self.state[USED] = self.state[BATCHES] = 0
        self._write_head()

    def _append(self, content: bytes, batches: int) -> None:
        length = self._head[LENGTH]
        if not self._take(len(content)):
            self._head[LOST_CAP] += batches
        elif self._file.write(content, DATA + length):
            self._head[LENGTH] = length + len(content)
        else:
            self._head[LOST_SPACE] += batches

    def _write_head(self) -> None:
        if self._map is None:
            self._file.write(bytes(self._head[:WORDS]), 0)
