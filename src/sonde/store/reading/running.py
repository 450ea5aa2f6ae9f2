"""The spans of one process that were entered and not left, from the newest part of its files: quick, and in bounded memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.packed import Segment
from sonde.store.process import read_info, read_names
from sonde.store.reading.reader import read_newest
from sonde.store.reading.segment import BAD, SLICE, cut

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_Slot = tuple[int, int, int, int]  # start, name, thread, key

TAIL = 64 << 20  # bytes of events.seg that are looked at; what left the rings before that is not found


class Running(NamedTuple):
    """An open span: category, name, for how long, in which thread, and its key."""

    cat: str
    name: str
    for_ns: int
    thread: str | None
    key: int | None


def running(folder: Path, now_ns: int | None = None) -> list[Running]:
    """The open spans of a process folder, the oldest first; how long they are open is known for a process that runs."""
    notes: list[str] = []
    now = time.monotonic_ns() if now_ns is None else now_ns
    rings = read_newest(folder, read_info(folder, notes), notes)
    found: dict[int, _Slot] = {}
    for slots, threads in _tail(folder, rings.header.seg_len if rings.header is not None else None):
        _follow(slots, threads, found)
    _follow(rings.records, rings.threads, found)
    known = read_names(folder, notes)
    owners = rings.owners | known.threads
    spans = []
    for start, name, thread, key in sorted(found.values()):
        owner = owners.get(thread)
        thread_name = owner.name if owner else None
        about = None if key == record.NO_KEY else key
        spans.append(Running(*known.names.get(name, ("", "?")), max(now - start, 0), thread_name, about))
    return spans


def _tail(folder: Path, length: int | None) -> Iterator[tuple[NDArray[np.void], NDArray[np.uint32]]]:
    """The newest records that left the rings, with the ordinals of their threads (0: not known)."""
    try:
        file = Segment(folder)
    except OSError:
        return
    with file:
        end = min(file.size(), length if length is not None else file.size()) // record.RECORD_SIZE
        first = max(end - TAIL // record.RECORD_SIZE, 0)
        buffer = np.empty(min(SLICE, end - first), dtype=list(record.RECORD_FIELDS))
        thread = left = 0
        for place in range(first, end, SLICE):
            view = buffer[: min(SLICE, end - place)]
            held = file.fill(view.view(np.uint8).data, place * record.RECORD_SIZE) // record.RECORD_SIZE
            one, thread, left = cut(view[:held], thread, left)
            good = one.what != BAD
            yield one.slots[good], one.threads[good]


def _follow(slots: NDArray[np.void], threads: NDArray[np.uint32], found: dict[int, _Slot]) -> None:
    """Take up what is open in these records, and forget what they close."""
    kind = slots["kind"]
    closing = (kind & record.AGAIN != 0) | (kind & record.KIND_MASK == record.VOID)
    for seq in slots["seq"][closing].tolist():
        found.pop(seq, None)
    opened = np.flatnonzero((kind & record.KIND_MASK == record.SPAN) & (kind & record.OPEN != 0))
    for place in opened.tolist():
        slot = slots[place]
        found[int(slot["seq"])] = int(slot["start"]), int(slot["name"]), int(threads[place]), int(slot["key"])
