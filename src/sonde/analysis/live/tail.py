"""Follows one growing process folder: each read returns the records completed since the previous one.

Nothing is read twice, and nothing is kept but the numbers of records that still lie in a ring. What comes in faster than it
can be looked at is skipped and counted; the recording itself has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.locate import stamp
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.file import RegularFile, why
from sonde.store.folder import ARGS_FILE, NAMES_FILE, PROCESS_FILE, RINGS_FILE, SEGMENT_FILE
from sonde.store.packed import Segment
from sonde.store.process import Info, read_info, read_names
from sonde.store.reading.blobs import Blobs
from sonde.store.reading.reader import read_newest
from sonde.store.reading.segment import BAD, SLICE, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sonde.store.reading.rings import Header

FIRST_BYTES = 8 * 2**20  # of a process that is there already, so much of its newest records is looked at
MANY_BYTES = 128 * 2**20  # of all that are there
LEAST_BYTES = 32 * 2**10  # of each of very many
MOST_BYTES = 16 * 2**20  # at one look
MOST_OPEN = 4096
FAR = 2**62  # times beyond this are damage
_NEXT_SEQ = next(offset for name, offset, _ in record.HEADER_FIELDS if name == "next_seq")


class Fresh(NamedTuple):
    """Records, in the order of their numbers, and the ordinal of each one's thread."""

    records: NDArray[np.void]
    threads: NDArray[np.uint32]


def nothing() -> Fresh:
    """No records."""
    return Fresh(np.empty(0, dtype=list(record.RECORD_FIELDS)), np.empty(0, dtype=np.uint32))


def share(among: int) -> int:
    """Bytes that are looked at first, of each of so many processes."""
    return min(FIRST_BYTES, max(LEAST_BYTES, MANY_BYTES // among))


class Tail:
    """One process folder. `open`: the spans that are entered and not left; `unread`: records from before the first look.

    `skipped` counts records that came too fast. `lost` is what the process itself says to have lost, by reason.
    """

    def __init__(self, folder: Path, among: int = 1) -> None:
        """`among`: how many processes there are; of many, less is looked at of each."""
        self.folder = folder
        self._first_bytes = share(among)
        self.notes: list[str] = []
        self.info: Info = read_info(folder, self.notes)
        self.names: dict[int, tuple[str, str]] = {}
        self.open: Fresh = nothing()
        self.lost: dict[str, int] = {}
        self.step: int | None = None
        self.epoch: int | None = None
        self.skipped = 0
        self.unread = 0
        self._offset: int | None = None
        self._block = (0, 0)  # thread and records to come of the block that the last look ended in
        self._done: NDArray[np.uint32] = nothing().threads
        self._pending: dict[int, tuple[Any, int]] = {}  # open spans that left their ring: number -> record, thread
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._over = False
        self._next_seq: int | None = None
        self._blobs = Blobs(folder / ARGS_FILE, self.notes)

    def look(self) -> Fresh:
        """The records that were completed since the last look."""
        if self._over:
            return nothing()
        self.notes.clear()
        try:
            if self._changed(PROCESS_FILE):
                self.info = read_info(self.folder, self.notes)
            self._over = self.info.end is not None  # it was noted after the last record
            return nothing() if self._idle() else self._look()
        except FileNotFoundError:  # the run is being sealed or removed
            return nothing()
        finally:
            if self._changed(NAMES_FILE):  # after the records: each name is written before them
                self.names = read_names(self.folder, self.notes).names

    def args(self, id: int) -> dict[str, Any]:
        """The arguments of a record; none if it has none."""
        text = self._blobs.text(id)
        self._blobs.close()
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def _changed(self, name: str) -> bool:
        now = stamp(self.folder / name)
        changed = name not in self._stamps or self._stamps[name] != now
        self._stamps[name] = now
        return changed

    def _idle(self) -> bool:
        """Whether no record was begun since the last look, and none is open that could have ended."""
        try:
            with RegularFile(self.folder / RINGS_FILE) as file:
                number = int.from_bytes(file.read(8, _NEXT_SEQ), "little")
        except OSError:  # it lies elsewhere, or there is none
            return False
        idle = number == self._next_seq and not len(self.open.records)
        self._next_seq = number
        return idle

    def _look(self) -> Fresh:
        rings = read_newest(self.folder, self.info, self.notes)  # before the segment: what leaves them is found there
        if rings.header is not None:
            self.lost, self.step, self.epoch = rings.header.lost, rings.header.step, rings.header.epoch
        pieces = self._pieces(rings.header)
        spilled = sum(len(piece.records) for piece in pieces)
        pieces.append(Fresh(rings.records, rings.threads))
        records = np.concatenate([piece.records for piece in pieces])
        threads = np.concatenate([piece.threads for piece in pieces])
        sane = _sane(records)
        return self._sift(records[sane], threads[sane], int(np.count_nonzero(sane[:spilled])))

    def _pieces(self, header: Header | None) -> list[Fresh]:
        """What was added to events.seg; nothing if something else stands in its place."""
        try:
            return list(self._segment(header))
        except FileNotFoundError:
            raise  # the run is being sealed or removed
        except OSError as error:
            self.notes.append(f"{SEGMENT_FILE} {why(error)}")
            return []

    def _segment(self, header: Header | None) -> Iterator[Fresh]:
        """What was added to events.seg."""
        with Segment(self.folder) as file:
            length = file.size() if header is None else min(file.size(), header.seg_len)
            offset = self._begin(length // record.RECORD_SIZE * record.RECORD_SIZE)
            while offset + record.RECORD_SIZE <= length:
                buffer = np.empty(min(SLICE, (length - offset) // record.RECORD_SIZE), dtype=list(record.RECORD_FIELDS))
                count = file.fill(buffer.view(np.uint8).data, offset) // record.RECORD_SIZE
                if not count:
                    break
                one, thread, left = cut(buffer[:count], *self._block)
                self._block = thread, left
                keep = one.what != BAD
                yield Fresh(one.slots[keep], one.threads[keep])
                offset += count * record.RECORD_SIZE
            self._offset = offset

    def _begin(self, length: int) -> int:
        """Where to read on. What is too much is left out."""
        first = self._offset is None
        offset, most = self._offset or 0, self._first_bytes if first else MOST_BYTES
        left_out = max(0, (length - offset - most) // record.RECORD_SIZE)
        if left_out:
            self._block = (0, 0)
            self._pending.clear()
        if first:
            self.unread = left_out
        else:
            self.skipped += left_out
        return offset + left_out * record.RECORD_SIZE

    def _sift(self, records: NDArray[np.void], threads: NDArray[np.uint32], spilled: int) -> Fresh:
        """The records that are complete and were not given out before. The first `spilled` have left their ring."""
        seqs, kinds = records["seq"], records["kind"]
        void = (kinds & record.KIND_MASK) == record.VOID
        open = ~void & ((kinds & record.OPEN) != 0)
        done = ~void & ~open
        fresh = np.flatnonzero(done & ~np.isin(seqs, self._done))
        _, first = np.unique(seqs[fresh], return_index=True)
        fresh = fresh[first]
        self._done = seqs[spilled:][done[spilled:]].copy()
        for place in np.flatnonzero(open[:spilled])[-MOST_OPEN:]:
            self._pending[int(seqs[place])] = records[place], int(threads[place])
        owners = self._owners(records[fresh], threads[fresh])
        self._forget(seqs[~open])
        in_rings = np.flatnonzero(open)
        in_rings = in_rings[(in_rings >= spilled) & ~np.isin(seqs[in_rings], seqs[~open])]
        self._keep_open(Fresh(records[in_rings], threads[in_rings]))
        return Fresh(records[fresh], owners)

    def _owners(self, records: NDArray[np.void], threads: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The thread that a span began in, where it was written again by whoever left it."""
        for place in np.flatnonzero((records["kind"] & record.AGAIN) != 0) if self._pending else ():
            _, threads[place] = self._pending.get(int(records["seq"][place]), (None, threads[place]))
        return threads

    def _forget(self, closed: NDArray[np.uint32]) -> None:
        """Spans that left their ring while they were open, and are closed now."""
        gone = np.isin(np.array([*self._pending], dtype=closed.dtype), closed).tolist()
        kept = [one for one, is_gone in zip(self._pending.items(), gone, strict=True) if not is_gone]
        self._pending = dict(kept[-MOST_OPEN:])

    def _keep_open(self, rings: Fresh) -> None:
        left = list(self._pending.values())
        spilled = np.array([one for one, _ in left], dtype=rings.records.dtype)
        records = np.concatenate([rings.records, spilled])
        threads = np.concatenate([rings.threads, np.array([one for _, one in left], dtype=np.uint32)])
        _, first = np.unique(records["seq"], return_index=True)
        self.open = Fresh(records[first], threads[first])


def _sane(records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records tell times that can be."""
    kinds = records["kind"] & record.KIND_MASK
    good = (kinds >= record.SPAN) & (kinds <= record.VOID) & (records["start"] < FAR)
    odd = (kinds == record.SPAN) & ((records["dur"] < 0) | (records["dur"] > FAR))
    sane: NDArray[np.bool_] = good & ~odd
    return sane
