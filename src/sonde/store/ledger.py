"""The ledger of a process: which items went into which batch, for the whole run. Its layout, and how it is written.

`docs/reference/store.md` describes the file. An entry goes into a buffer at the file's beginning at once, and so is safe from a kill; a
full buffer goes behind it with one write. `entries.py` reads it.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections.abc import Callable
from typing import Any

from sonde.store.descriptor import File
from sonde.store.probe import loader_of

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
BLOCK_ROOM = 4096  # where entries gather in memory, a kill loses at most so much

_RANGED = struct.Struct(ENTRY.format + "q")
_HASHED = struct.Struct(ENTRY.format + "Q")
# Of a writer's state: bytes in its buffer, bytes that it may hold, batches in it, at work; then the file, for C: its descriptor
# (-1: entries stay in memory), device and number.
USED, ROOM, BATCHES, BUSY, DESCRIPTOR = range(5)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class EntryMaker:
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
        loader = loader_of(key)
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


class LedgerWriter:
    """The ledger of this process, open for writing. What cannot be written is counted in its head."""

    def __init__(self, fd: int, take: Callable[[int], bool], path: str | None = None, *, at_once: bool = True) -> None:
        """Takes over the descriptor of a new file, the one at `path`. `take` asks whether the run may grow by so many bytes.

        Without `at_once` entries gather in memory first.
        """
        self._file = File(fd, path)
        self._take = take
        self._at_once = at_once and self._file.allocate(0, DATA)
        self._head = memoryview(bytearray(HEAD_BYTES)).cast("Q")
        self._written = 0  # batches behind the buffer
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        # C writes into the buffer too (`put_quickly` in native/ledger.h): while there is room, and nobody else is at it.
        file = (fd, *(self._file.identity or (0, 0))) if self._at_once else (-1, 0, 0)
        self.state = array(
            "q", [0, BUFFER_BYTES if self._at_once else BLOCK_ROOM, 0, 0, *(_signed(one) for one in file)]
        )
        self._lock = threading.Lock()
        self._owner = 0  # the thread that has it
        self._head.cast("B")[: len(MAGIC)] = MAGIC
        self._write_head()
        self._take(DATA)

    def put(self, entry: bytes, batches: int = 1) -> None:
        """Add an entry, which stands for so many batches."""
        if not self._alone(self._put, entry, batches):
            self._head[LOST_SPACE] += batches

    def _put(self, entry: bytes, batches: int) -> None:
        state = self.state
        if len(entry) > state[ROOM] - state[USED] and not self._make_room(entry, batches):
            return
        start = state[USED]
        end = start + len(entry)
        self.buffer[start:end] = entry
        state[USED] = end
        state[BATCHES] += batches
        if self._at_once:
            self._file.write((entry, HEAD_BYTES + start))
            state[DESCRIPTOR] = self._file.fd

    def flush(self) -> None:
        """Write out what is in memory only."""
        self._alone(self._mend if self._at_once else self._spill)

    def _alone(self, function: Callable[..., None], *args: Any) -> bool:
        """Call it while no other thread is here; False: this one is already, and a signal came. What its handler raises frees the lock."""
        me = threading.get_ident()
        if self._owner == me:
            return False
        with self._lock:
            self._owner = me
            self.state[BUSY] = 1
            try:
                function(*args)
            finally:
                self.state[BUSY] = self._owner = 0
        return True

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file as it is; what a forked child does with that of its parent."""
        self.state[ROOM] = self.state[USED] = self.state[BATCHES] = 0  # C knows where the buffer is
        self.state[DESCRIPTOR] = -1
        self._file.close()
        self._at_once = False
        self.buffer = memoryview(b"")

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
        self._mend()
        self._append(bytes(self.buffer[:used]), self.state[BATCHES])
        if self._at_once:
            self._write_head()  # from now on the buffer does not count
            self._file.write((bytes(used), HEAD_BYTES))
        self.buffer[:used] = bytes(used)
        self._head[BASE] = self._head[LENGTH]
        self.state[USED] = self.state[BATCHES] = 0
        self._write_head()

    def _mend(self) -> None:
        """Another program may have truncated the file: what was behind the buffer is lost."""
        length = self._head[LENGTH]
        if self._file.size() >= (DATA + length if length or self._at_once else 0):
            return
        self._head[LOST_SPACE] += self._written
        self._head[LENGTH] = self._head[BASE] = self._written = 0
        self._write_head()
        if self._at_once:
            self._file.write((bytes(self.buffer), HEAD_BYTES))

    def _append(self, content: bytes, batches: int) -> None:
        length = self._head[LENGTH]
        if not self._take(len(content)):
            self._head[LOST_CAP] += batches
        elif self._file.write((content, DATA + length)):
            self._head[LENGTH] = length + len(content)
            self._written += batches
        else:
            self._head[LOST_SPACE] += batches

    def _write_head(self) -> None:
        self._file.write((bytes(self._head[:WORDS]), 0))


def _signed(number: int) -> int:
    """The same 64 bits, as a number with a sign."""
    return (number & _HIGHEST) - (number & -_LOWEST)
