"""Finds out which records of a process count: each number once, the complete one of two, and how many are missing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sonde import native
from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.reading.segment import BAD, PLAIN, SPECIAL, Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

ALL_NUMBERS = 2**32
# Numbers below eight times the slots that were found (and a million) have a place of their own in a table. Records with
# higher ones are rare (most were lost, or the number is damaged), and are sorted instead.
TABLE_FACTOR = 8
TABLE_LEAST = 1_000_000
FEW_RUNS = 64  # of consecutive numbers in a slice; those of one thread are mostly a single run


class Sequence:
    """The numbers of one process.

    `end`: records from this number on do not count, they came while the rings were read. `kept` records remain,
    `missing` were given out and are nowhere, `corrupt` carry a number that was never given out.
    """

    def __init__(self, end: int, table: int) -> None:
        self.end = end
        self.kept = self.missing = self.corrupt = 0
        self._doubtful = np.zeros(min(end, table), dtype=np.bool_)
        self._doubtful_above = np.empty(0, dtype=np.uint32)
        self.any_doubtful = False
        self._deep = np.empty(0, dtype=np.uint32)
        self._deep_depths = np.empty(0, dtype=np.uint32)

    def doubt(self, seqs: NDArray[np.uint32]) -> None:
        """There is more than one record with these numbers."""
        if len(seqs):
            self.any_doubtful = True
            inside = seqs < len(self._doubtful)
            self._doubtful[seqs[inside]] = True
            self._doubtful_above = np.union1d(self._doubtful_above, seqs[~inside])

    def doubtful(self, seqs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these numbers have more than one record."""
        if not self.any_doubtful:
            return np.zeros(len(seqs), dtype=np.bool_)
        if len(seqs) and seqs.max() < len(self._doubtful):
            return self._doubtful[seqs]
        found = np.isin(seqs, self._doubtful_above)
        inside = seqs < len(self._doubtful)
        found[inside] = self._doubtful[seqs[inside]]
        return found

    def set_deep(self, seqs: NDArray[np.uint32], parents: NDArray[np.uint32]) -> None:
        """Follow the parents of records whose depth did not fit into its byte."""
        self._deep, first = np.unique(seqs, return_index=True)
        self._deep_depths = _follow(self._deep, parents[first])

    def depths(self, records: NDArray[np.void]) -> NDArray[np.uint8] | NDArray[np.uint32]:
        """The real depth of each record."""
        if not len(self._deep):
            small: NDArray[np.uint8] = records["depth"]
            return small
        depths = records["depth"].astype(np.uint32)
        deep = np.flatnonzero(depths == record.DEEPEST)
        place = np.searchsorted(self._deep, records["seq"][deep]).clip(max=len(self._deep) - 1)
        depths[deep] = self._deep_depths[place]
        return depths


def _follow(seqs: NDArray[np.uint32], parents: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Depths of records that are all at least DEEPEST deep, by jumping twice as far up in each round."""
    place = np.searchsorted(seqs, parents).clip(max=max(len(seqs) - 1, 0))
    # A parent is older than its child; anything else is damage, and must not lead into a circle.
    linked = (seqs[place] == parents) & (parents < seqs) if len(seqs) else np.empty(0, dtype=np.bool_)
    jump = np.where(linked, place, np.arange(len(seqs)))
    steps = linked.astype(np.uint32)
    while np.any(steps[jump]):
        steps = steps + steps[jump]
        jump = jump[jump]
    return steps + np.uint32(record.DEEPEST)


class _Tally:
    """What a first look at all slots finds."""

    def __init__(self, limits: tuple[int, int] | None, slots: int) -> None:
        end, self.given = limits or (ALL_NUMBERS, ALL_NUMBERS)
        self.sequence = Sequence(end, TABLE_FACTOR * slots + TABLE_LEAST)
        self.seen = np.zeros(min(end, TABLE_FACTOR * slots + TABLE_LEAST), dtype=np.bool_)
        self.seen_above: list[NDArray[np.uint32]] = []
        self.again = 0
        self.plain = 0
        self.highest = 0
        self.special: list[NDArray[np.uint32]] = []
        self.void: list[NDArray[np.uint32]] = []
        self.deep: list[NDArray[np.void]] = []

    def look(self, one: Slice) -> None:
        """Count the slots of one slice."""
        seqs, what = one.seqs, one.what
        self.sequence.corrupt += one.bad
        if len(seqs) and seqs.max() >= self.sequence.end:
            what = np.where(seqs < self.sequence.end, what, BAD)
            self.sequence.corrupt += int(np.count_nonzero((seqs >= self.given) & (one.what != BAD)))
        if native.slots is None:
            self._mark(seqs[np.flatnonzero(what == PLAIN)])
        else:
            self._mark_at_once(seqs, what)
        special = np.flatnonzero(what == SPECIAL)
        if len(special):
            self.special.append(seqs[special])
            kinds = one.slots["kind"][special] & record.KIND_MASK
            self.void.append(seqs[special[kinds == record.VOID]])
        deep = np.flatnonzero(one.slots["depth"] == record.DEEPEST)
        if len(deep):
            self.deep.append(one.slots[deep[what[deep] != BAD]])

    def _mark(self, seqs: NDArray[np.uint32]) -> None:
        if not len(seqs):
            return
        self.plain += len(seqs)
        highest = int(seqs.max())
        self.highest = max(self.highest, highest)
        if highest >= len(self.seen):
            inside = seqs < len(self.seen)
            self.seen_above.append(seqs[~inside])
            seqs = seqs[inside]
        turns = np.flatnonzero(seqs[1:] - seqs[:-1] != 1) + 1
        if not len(seqs) or len(turns) >= FEW_RUNS:
            self._see(seqs, seqs)
            return
        for first, last in pairwise([0, *turns.tolist(), len(seqs)]):
            self._see(seqs[first:last], slice(int(seqs[first]), int(seqs[last - 1]) + 1))

    def _mark_at_once(self, seqs: NDArray[np.uint32], what: NDArray[np.uint8]) -> None:
        """The same in C."""
        twice, above = np.empty(len(seqs), np.uint32), np.empty(len(seqs), np.uint32)
        plain, highest, again, beyond = native.slots.mark(seqs, what, self.seen, twice, above)
        self.plain += plain
        self.highest = max(self.highest, highest)
        if beyond:
            self.seen_above.append(above[:beyond].copy())
        if again:
            self.again += again
            self.sequence.doubt(twice[:again])

    def _see(self, seqs: NDArray[np.uint32], places: slice | NDArray[np.uint32]) -> None:
        """Mark numbers, which have these places in the table."""
        twice = self.seen[places]
        if twice.any():
            self.again += int(twice.sum())
            self.sequence.doubt(seqs[twice])
        self.seen[places] = True

    def finish(self, retell: Callable[[], Iterable[Slice]]) -> Sequence:
        """Put it all together. `retell` gives the slices once more, for the rare case of damage."""
        above, times = np.unique(_joined(self.seen_above), return_counts=True)
        self.sequence.doubt(above[times > 1])
        if int(np.count_nonzero(self.seen)) + self.again != self.plain - int(times.sum()):
            for one in retell():
                seqs = np.sort(one.seqs[one.what == PLAIN])
                self.sequence.doubt(seqs[1:][seqs[1:] == seqs[:-1]])
        special = np.unique(_joined(self.special))
        self.sequence.doubt(special)
        inside = special < len(self.seen)
        self.seen[special[inside]] = True
        distinct = int(np.count_nonzero(self.seen)) + len(np.union1d(above, special[~inside]))
        highest = max(self.highest, int(special[-1]) if len(special) else 0)
        end = highest + 1 if self.sequence.end == ALL_NUMBERS else self.sequence.end
        self.sequence.missing = end - 1 - distinct
        self.sequence.kept = distinct - len(np.unique(_joined(self.void)))
        if self.deep:
            deep = np.concatenate(self.deep)
            self.sequence.set_deep(deep["seq"], deep["parent"])
        return self.sequence


def sequence_of(
    retell: Callable[[], Iterable[Slice]],
    slots: int,
    limits: tuple[int, int] | None,
    notes: list[str],
) -> Sequence:
    """Look at all slices. `limits`: the numbers given out before and after the rings were read, if known."""
    tally = _Tally(limits, slots)
    for one in retell():
        tally.look(one)
    found = tally.finish(retell)
    if limits is not None and found.corrupt > found.kept + found.missing:
        bare = sequence_of(retell, slots, None, notes)
        if bare.kept > found.kept:
            notes.append(f"rings are damaged: the header has {limits[0]} as the next number, but records go beyond it")
            return bare
    return found


class Survivors(NamedTuple):
    """Records that count, and the ordinals of their threads. The records may be overwritten when the next ones come."""

    records: NDArray[np.void]
    threads: NDArray[np.uint32]
    counters: bool  # all of them are counters, or none is


def cleaned(slices: Iterable[Slice], sequence: Sequence) -> Iterator[Slice]:
    """The slices again, with BAD for each slot whose record does not count; what other slots settled comes last."""
    doubtful: list[tuple[NDArray[np.void], NDArray[np.uint32]]] = []
    for one in slices:
        seqs, what = one.seqs, one.what
        if len(seqs) and seqs.max() >= sequence.end:
            what = what * (seqs < sequence.end)
        odd = np.flatnonzero((what != BAD) & sequence.doubtful(seqs)) if sequence.any_doubtful else ()
        if len(odd):
            doubtful.append((one.slots[odd], one.threads[odd]))
            what = what.copy()
            what[odd] = BAD
        yield one._replace(what=what)
    if doubtful:
        records, threads = _last_versions(
            np.concatenate([one for one, _ in doubtful]), np.concatenate([one for _, one in doubtful])
        )
        what = np.full(len(records), PLAIN, np.uint8)
        yield Slice(records, records["seq"].copy(), what, threads, 0, records["kind"].copy())


def survivors(slices: Iterable[Slice], sequence: Sequence) -> Iterator[Survivors]:
    """The records that count."""
    buffer = np.empty(0, dtype=list(record.RECORD_FIELDS))
    for one in cleaned(slices, sequence):
        if len(one.slots) > len(buffer):
            buffer = np.empty(len(one.slots), dtype=buffer.dtype)
        yield from _apart(one, buffer)


def _apart(one: Slice, buffer: NDArray[np.void]) -> Iterator[Survivors]:
    """Counters apart from the others: what is a duration there is a float here."""
    counters = (one.kinds & record.KIND_MASK) == record.COUNTER
    for which in (False, True):
        taken = np.flatnonzero((one.what != BAD) & (counters == which))
        if len(taken):
            # Taken into memory that is there already, this is ten times as fast as `slots[taken]`.
            np.take(one.slots, taken, out=buffer[: len(taken)], mode="clip")
            yield Survivors(buffer[: len(taken)], one.threads[taken], which)


def _last_versions(
    records: NDArray[np.void], threads: NDArray[np.uint32]
) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """Of the records with the same number keep the last word: cancelled, written again, complete, open."""
    kind = records["kind"]
    again = (kind & record.AGAIN) != 0
    rank = np.where((kind & record.KIND_MASK) == record.VOID, 3, np.where(again, 2, (kind & record.OPEN) == 0))
    first = np.lexsort((rank, again, records["seq"]))  # the original leads, if it is there: it knows the thread
    last = np.lexsort((rank, records["seq"]))
    _, starts = np.unique(records["seq"][last], return_index=True)
    ends = np.append(starts[1:], len(last)) - 1
    best = records[last[ends]]
    owners = threads[first[starts]]
    best["kind"] &= ~np.uint8(record.AGAIN)
    valid = (best["kind"] & record.KIND_MASK) != record.VOID
    return best[valid], owners[valid]


def _joined(pieces: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    return np.concatenate([np.empty(0, dtype=np.uint32), *pieces])
