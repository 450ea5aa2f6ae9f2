"""Reads events.seg, the records that left the rings: slice by slice, whatever it contains."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sonde import native
from sonde.lazy import numpy as np
from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sonde.store.file import RegularFile

SLICE = 32_768  # slots read at once: small enough for the processor's cache
GIVE_UP = 20_000_000  # bad slots (1 GB) behind which nothing more is looked for: a hole can be as large as it likes

# What a slot is, by its kind byte.
BAD, PLAIN, SPECIAL, HEAD = 0, 1, 2, 3  # SPECIAL: completes or cancels another record


class Slice(NamedTuple):
    """Some slots of the file; `slots` is only good until the next slice is read."""

    slots: NDArray[np.void]
    seqs: NDArray[np.uint32]  # the numbers of the slots, side by side
    what: NDArray[np.uint8]  # BAD, PLAIN or SPECIAL; block heads are BAD too, but not counted as such
    threads: NDArray[np.uint32]
    bad: int
    kinds: NDArray[np.uint8]  # the kind bytes of the slots, side by side


def slices(file: RegularFile, length: int) -> Iterator[Slice]:
    """The first `length` bytes of a segment, as slices."""
    buffer = np.empty(min(SLICE, length // record.RECORD_SIZE), dtype=list(record.RECORD_FIELDS))
    view = buffer.view(np.uint8).data
    thread, left, bad, offset = 0, 0, 0, 0
    while bad < GIVE_UP and offset < length:
        count = file.fill(view[: length - offset], offset) // record.RECORD_SIZE
        if not count:
            break
        one, thread, left = cut(buffer[:count], thread, left)
        yield one
        bad += one.bad
        offset += count * record.RECORD_SIZE


@cache
def classes() -> NDArray[np.uint8]:
    """For each value of the kind byte, what a slot with it is."""
    table = np.zeros(256, dtype=np.uint8)
    for kind in range(256):
        if kind == record.BLOCK:
            table[kind] = HEAD
        elif kind & record.KIND_MASK == record.VOID:
            table[kind] = SPECIAL
        elif kind & record.KIND_MASK in (record.SPAN, record.COUNTER, record.MARK):
            table[kind] = SPECIAL if kind & record.AGAIN else PLAIN
    return table


def cut(slots: NDArray[np.void], thread: int, left: int) -> tuple[Slice, int, int]:
    """Say what each slot is. A block of `thread` with `left` records to come reaches into these slots."""
    if native.slots is None:
        return _cut(slots, thread, left)
    count = len(slots)
    kinds, what = np.empty(count, np.uint8), np.empty(count, np.uint8)
    seqs, threads = np.empty(count, np.uint32), np.empty(count, np.uint32)
    thread, left, bad, alone = native.slots.cut(np.ascontiguousarray(slots), kinds, seqs, what, threads, thread, left)
    if alone:
        threads = np.broadcast_to(np.uint32(thread), count)
    return Slice(slots, seqs, what, threads, bad, kinds), thread, left


def _cut(slots: NDArray[np.void], thread: int, left: int) -> tuple[Slice, int, int]:
    """The same with NumPy."""
    # Columns are copied side by side first: what is done with them then is several times as fast.
    kinds = np.ascontiguousarray(slots["kind"])
    what = np.take(classes(), kinds)
    heads = np.flatnonzero(kinds == record.BLOCK)
    good = (slots["start"][heads] == record.BLOCK_MAGIC) & (slots["key"][heads] > 0)
    good &= slots["key"][heads] <= record.RING_RECORDS
    what[heads] = BAD
    heads = heads[good]
    starts = np.concatenate(([-1], heads))
    counts = np.concatenate(([left], slots["key"][heads]))
    owners = np.concatenate((np.array([thread], dtype=np.uint32), slots["name"][heads]))
    spans = np.diff(starts, append=len(slots))
    _drop_strays(what, starts, counts, spans)
    seqs = np.ascontiguousarray(slots["seq"])
    what *= seqs != 0
    bad = len(slots) - len(heads) - int(np.count_nonzero(what))
    alone = bool(np.all(owners == owners[-1]))
    threads = np.broadcast_to(owners[-1], len(slots)) if alone else np.repeat(owners, spans)[1:]
    return Slice(slots, seqs, what, threads, bad, kinds), int(owners[-1]), max(0, int(counts[-1] - spans[-1] + 1))


def _drop_strays(
    what: NDArray[np.uint8], starts: NDArray[np.int64], counts: NDArray[np.int64], spans: NDArray[np.int64]
) -> None:
    """Slots behind the end of their block, with no new head before them, are nobody's."""
    for index in np.flatnonzero(spans - 1 > counts):
        what[starts[index] + 1 + counts[index] : starts[index] + spans[index]] = BAD
