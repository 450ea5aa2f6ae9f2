"""Lets the usual records of steps pass, of which a long run has millions, and keeps the others; in the first look at a file."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sonde.analysis.census import Census
from sonde.store import native, probe, record
from sonde.store.card import read_names
from sonde.store.segment import PLAIN, Slice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sonde.store.reader import Recording

HIGHEST_NAME = 2 * record.MAX_NAMES  # name ids above this are damage
FAR = 2**62  # times beyond this are damage
MIDDLE = 20_000  # records in the middle of a process that are loaded all the same
SLACK = 20_000  # records by which a guess of where that is may be wrong
MOST_KEPT = 1 << 20  # other records; with more of them it is better to read the file again
MOST_TURNS = 256  # from thread to thread in a slice; of blocks as they are usually written it has at most 48
_STEP, _WAIT, _UPDATE = 1, 2, 3
_STEPS = {
    **dict.fromkeys((probe.H2D, probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER, probe.SAMPLES, probe.LOSS), _STEP),
    probe.INPUT_WAIT: _WAIT,
    probe.UPDATE: _UPDATE,
}
_NUMBER = 2**28 - 1  # of a batch, in its key


def middle_of(events: int) -> tuple[int, int]:
    """The first and the last number of the records that are loaded in any case: those in the middle of a process."""
    low = max(0, (events - MIDDLE) // 2)
    return low, low + MIDDLE


class Usual:
    """Tells which records only steps are made of: completed, without arguments; no first batch of an iterator, no aborted step.

    Those with numbers from `low` to `high` are wanted anyhow.
    """

    def __init__(self, names: Mapping[int, tuple[str, str]], low: int, high: int) -> None:
        import numpy as np

        known = {id: name for id, (cat, name) in names.items() if 0 < id <= HIGHEST_NAME and cat == probe.PROBE}
        self.table = np.zeros(max(known, default=0) + 2, dtype=np.uint8)
        for id, name in known.items():
            self.table[id] = _STEPS.get(name, 0)
        self.low, self.high = low, high

    def of(self, records: NDArray[np.void], kinds: NDArray[np.uint8], seqs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these records."""
        import numpy as np

        codes = np.take(self.table, records["name"], mode="clip")
        found: NDArray[np.bool_] = (codes != 0) & (kinds <= record.MARK)
        if np.count_nonzero(records["args"]):
            found &= records["args"] == 0
        keys = records["key"]
        waits, updates = np.flatnonzero(codes == _WAIT), np.flatnonzero(codes == _UPDATE)
        found[waits[keys[waits] & _NUMBER == 0]] = False
        found[updates[keys[updates] & probe.UPDATE_ABORTED != 0]] = False
        if len(seqs) and seqs.min() <= self.high and seqs.max() >= self.low:
            found &= (seqs < self.low) | (seqs > self.high)
        return found


class Sieve:
    """Watches how a process is read, and counts what passes. `events`: about how many records it has."""

    def __init__(self, folder: Path, events: int) -> None:
        names = read_names(folder, []).names
        low, high = middle_of(events)
        self._usual = Usual(names, low - SLACK, high + SLACK)
        self._pieces: list[Slice] = []
        self._count = 0
        self.census = Census(names)
        self.passed = 0
        self.first, self.last = FAR, -1

    def watch(self, one: Slice, what: NDArray[np.uint8]) -> None:
        """Take a slice, of which `what` says what each slot is."""
        import numpy as np

        if self._count > MOST_KEPT:
            return
        turns = np.flatnonzero(one.threads[1:] != one.threads[:-1]) + 1
        if len(turns) > MOST_TURNS or native.slots is None:
            usual = self._usual.of(one.slots, one.kinds, one.seqs) & (what == PLAIN)
            rest = np.flatnonzero((what != 0) & ~usual)
            self._let_pass(one, np.flatnonzero(usual))
        else:
            runs = pairwise([0, *turns.tolist(), len(what)])
            rest = np.concatenate([self._sift(one, what, *run) for run in runs])
        if len(rest):
            self._count += len(rest)
            self._pieces.append(
                Slice(one.slots[rest], one.seqs[rest], what[rest], one.threads[rest], 0, one.kinds[rest])
            )

    def kept(self, recording: Recording) -> list[Slice] | None:
        """The records that did not pass; None: the recording has to be read once more to tell its records.

        What passed must be the only record of its number, and none of the records in the middle.
        """
        import numpy as np

        low, high = middle_of(len(recording))
        near = self._usual.low <= low and high <= self._usual.high
        if not (recording.orderly and near and self._count <= MOST_KEPT):
            return None
        plain = np.concatenate([np.empty(0, np.uint32), *(one.seqs[one.what == PLAIN] for one in self._pieces)])
        special = np.concatenate([np.empty(0, np.uint32), *(one.seqs[one.what != PLAIN] for one in self._pieces)])
        whole = np.count_nonzero(np.isin(plain, special)) == recording.completed
        return self._pieces if whole else None

    def _let_pass(self, one: Slice, places: NDArray[np.intp]) -> None:
        import numpy as np

        if not len(places):
            return
        kinds = one.kinds[places]
        starts = one.slots["start"][places]
        lasting = one.slots["dur"][places].view(np.uint64)
        lasting *= kinds != record.COUNTER  # it has a value there
        self.census.add(one.slots["name"][places], kinds, one.threads[places])
        self.passed += len(places)
        self.first = min(self.first, int(starts.min()))
        self.last = max(self.last, last_of(starts, starts + lasting))

    def _sift(self, one: Slice, what: NDArray[np.uint8], low: int, high: int) -> NDArray[np.int64]:
        """Let the usual ones of some slots pass, which are of one thread, in C; the places of the others."""
        import numpy as np

        if low == high:
            return np.empty(0, np.int64)
        slots, rest = np.ascontiguousarray(one.slots[low:high]), np.empty(high - low, np.int64)
        counts = self.census.counts_of(int(one.threads[low]))
        usual = self._usual
        passed, others, first, last = native.slots.sift(
            slots, what[low:high], usual.table, counts, rest, usual.low, usual.high, probe.UPDATE_ABORTED
        )
        if passed:
            self.passed += passed
            self.first, self.last = min(self.first, first), max(self.last, last)
        return rest[:others] + low


def last_of(starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> int:
    """The last moment that records tell of, on the monotonic clock."""
    import numpy as np

    last = int(ends.max())
    if last < FAR:
        return last
    near = np.where(ends < FAR, ends, starts)  # what has a damaged duration began at least
    return int(near.max(where=near < FAR, initial=0))
