"""Reads one process folder, whoever wrote it and in whatever state it is, and keeps the valid part.

A folder may be live, left behind by a killed process, cut short or damaged. What is wrong with it becomes a note; only
a folder with nothing to read is an error. Memory is bounded by what the files really hold, never by a number in
them. numpy is loaded when something is read, not before.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sonde.errors import RunUnreadable
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.file import why
from sonde.store.packed import Segment
from sonde.store.process import Info, Thread, read_info, read_names
from sonde.store.reading.blobs import Blobs
from sonde.store.reading.rings import Header, Rings, no_rings, read_rings
from sonde.store.reading.segment import PLAIN, SPECIAL, Slice, classes, slices
from sonde.store.reading.sequence import ALL_NUMBERS, Sequence, cleaned, sequence_of, survivors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

FILES = ("process.json", "rings", "events.seg", "names.jsonl", "args.bin")


class Chunk(NamedTuple):
    """Some records of a process: the records, the ordinal of each one's thread, and each one's real depth.

    `counters`: all of them are counters, or none is.
    """

    records: NDArray[np.void]
    threads: NDArray[np.uint32]
    depths: NDArray[np.uint8] | NDArray[np.uint32]
    counters: bool


class ProcessRecording:
    """What one process recorded, as it was when the folder was opened.

    `missing` counts records that were begun and are nowhere to be found, `corrupt` the slots that hold no record though
    they should. `lost` says for what reason the process itself knows to have lost records; None: it left no word.
    `counted`: it is known how many were begun. Else `missing` has only those before the last one that was found.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.notes: list[str] = []
        self.info: Info = read_info(self.folder, self.notes)
        rings = read_newest(
            self.folder, self.info, self.notes
        )  # before the segment: what leaves the rings meanwhile is found there
        self.header: Header | None = rings.header
        self._rings = _slice_of(rings)
        self._segment = self._open_segment()
        self._length = self._segment_length()
        self._sequence: Sequence = sequence_of(self._slices, self._slots(), self._limits(), self.notes)
        self.corrupt = self._sequence.corrupt + rings.corrupt
        self.missing = self._sequence.missing
        whole = self.info.writes == "block" and self._segment is not None  # without rings, the file is all there is
        self.counted = whole or self._sequence.end != ALL_NUMBERS
        self.lost: dict[str, int] | None = None if rings.header is None else rings.header.lost
        # After the records: each name was written before the first record that cites it.
        found = read_names(self.folder, self.notes)
        self.names: dict[int, tuple[str, str]] = found.names
        self.threads: dict[int, Thread] = rings.owners | found.threads
        self._blobs = Blobs(self.folder / "args.bin", self.notes)
        self._note_problems()

    def __len__(self) -> int:
        """The number of records, not counting lost and cancelled ones."""
        return self._sequence.kept

    def chunks(self) -> Iterator[Chunk]:
        """The records, each once, in no particular order. A chunk may be overwritten when the next one is read."""
        for records, threads, counters in survivors(self._slices(), self._sequence):
            yield Chunk(records, threads, self._sequence.depths(records), counters)

    def slices(self) -> Iterator[Slice]:
        """All slots as they lie in the files, BAD where there is no record that counts. Good until the next one is read."""
        return cleaned(self._slices(), self._sequence)

    @cached_property
    def records(self) -> NDArray[np.void]:
        """All records, in the order of their numbers."""
        empty = np.empty(0, dtype=list(record.RECORD_FIELDS))
        return np.concatenate([empty, *(chunk.records.copy() for chunk in self.chunks())])[self._order]

    @cached_property
    def thread(self) -> NDArray[np.uint32]:
        """The ordinal of the thread of each of `records`."""
        return np.concatenate([np.empty(0, np.uint32), *(chunk.threads for chunk in self.chunks())])[self._order]

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        seqs = [chunk.records["seq"].copy() for chunk in self.chunks()]
        return np.argsort(np.concatenate([np.empty(0, np.uint32), *seqs]), kind="stable")

    def args(self, id: int) -> str | None:
        """The arguments with this id, as JSON text; None if there are none or if they are damaged."""
        return self._blobs.text(id)

    def close(self) -> None:
        """Close the files. What is read after this opens them again."""
        self._blobs.close()
        if self._segment is not None:
            self._segment.close()
        self._segment = None

    def _open_segment(self) -> Segment | None:
        try:
            return Segment(self.folder)
        except OSError as error:
            self.notes.append(f"events.seg {why(error)}")
        if self.header is None and not (self.folder / "process.json").is_file():
            raise RunUnreadable(
                f"Cannot read {self.folder}: {'; '.join(self.notes)}. Restore the folder from a backup, or delete it."
            )
        return None

    def _segment_length(self) -> int:
        if self._segment is None:
            return 0
        size = self._segment.size()
        if self.header is None:
            return size
        if self.header.seg_len > size:
            self.notes.append(f"events.seg is truncated: it has {size} of {self.header.seg_len} bytes")
        return min(size, self.header.seg_len)

    def _slots(self) -> int:
        return self._length // record.RECORD_SIZE + len(self._rings.slots)

    def _limits(self) -> tuple[int, int] | None:
        """The numbers that had been given out before and after the rings were read; None: nobody says."""
        if self.header is None:
            return None
        if not 1 <= self.header.next_seq <= self.header.end_seq <= 2**32:
            self.notes.append(f"rings are damaged: the header has {self.header.next_seq} as the next number")
            return None
        return self.header.next_seq, self.header.end_seq

    def _slices(self) -> Iterator[Slice]:
        """All slots: those of the segment, then those of the rings."""
        if self._length:
            self._segment = self._segment or self._open_again()
            yield from slices(self._segment, self._length)
        yield self._rings

    def _open_again(self) -> Segment:
        try:
            return Segment(self.folder)
        except OSError as error:
            raise RunUnreadable(
                f"{self.folder}/events.seg {why(error)}, but was there before: the run was sealed or deleted. Open "
                "it again."
            ) from None

    def _note_problems(self) -> None:
        if self.missing and not self.counted:
            self.notes.append(f"at least {self.missing} records are missing")
        if self.corrupt:
            self.notes.append(f"events.seg is damaged: {self.corrupt} blocks of 48 bytes are not records")


def _slice_of(rings: Rings) -> Slice:
    what = classes()[rings.records["kind"]]
    what[(what != PLAIN) & (what != SPECIAL)] = 0
    return Slice(rings.records, rings.records["seq"].copy(), what, rings.threads, 0, rings.records["kind"].copy())


def read_newest(folder: Path, info: Info, notes: list[str]) -> Rings:
    """What the rings of a process hold, wherever they lie."""
    if info.writes == "block":
        return no_rings()
    elsewhere = info.rings
    path = Path(elsewhere) if elsewhere and elsewhere.startswith("/") else folder / "rings"
    return read_rings(path, folder.stat().st_uid, notes)


def read_process(folder: str | Path) -> ProcessRecording:
    """Read a process folder. Raises RunUnreadable if there is nothing to read."""
    path = Path(folder)
    if not path.is_dir() or path.is_symlink():
        raise RunUnreadable(f"{path} is not a process folder. Give a folder <host>-<pid>-<n> inside a run folder.")
    return ProcessRecording(path)
