"""Which records are used only to build steps: a long run has millions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.lazy import numpy as np
from sonde.store import probe, record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

HIGHEST_NAME = 2 * record.MAX_NAMES  # name ids above this are damage
FAR = 2**62  # times beyond this are damage
MIDDLE = 20_000  # records in the middle of a process that are loaded all the same
_STEP, _WAIT, _UPDATE, _LOADED = 1, 2, 3, 4
_STEPS = {
    **dict.fromkeys((probe.H2D, probe.FORWARD, probe.BACKWARD, probe.OPTIMIZER, probe.SAMPLES, probe.LOSS), _STEP),
    probe.INPUT_WAIT: _WAIT,
    probe.UPDATE: _UPDATE,
}
# A sealed run has tables of batches and items too.
_SEALED = {probe.FETCH: _LOADED, probe.ITEM: _LOADED}


def middle_of(events: int) -> tuple[int, int]:
    """The first and the last number of the records that are loaded in any case: those in the middle of a process."""
    low = max(0, (events - MIDDLE) // 2)
    return low, low + MIDDLE


class Plain:
    """Tells which records only steps are made of: completed, without arguments; no first batch of an iterator, no aborted step.

    Those with numbers from `low` to `high` are wanted anyhow. `sealed`: also what only batches and items are made of.
    """

    def __init__(self, names: Mapping[int, tuple[str, str]], low: int, high: int, *, sealed: bool = False) -> None:
        known = {id: name for id, (cat, name) in names.items() if 0 < id <= HIGHEST_NAME and cat == probe.PROBE}
        self.table = np.zeros(max(known, default=0) + 2, dtype=np.uint8)
        for id, name in known.items():
            self.table[id] = _code(name, sealed=sealed)
        self.low, self.high = low, high

    def of(self, records: NDArray[np.void], kinds: NDArray[np.uint8], seqs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these records."""
        codes = np.take(self.table, records["name"], mode="clip")
        found: NDArray[np.bool_] = (codes != 0) & (kinds <= record.MARK)
        if np.count_nonzero(records["args"]):
            found &= (records["args"] == 0) | (codes == _LOADED)
        keys = records["key"]
        waits, updates = np.flatnonzero(codes == _WAIT), np.flatnonzero(codes == _UPDATE)
        found[waits[probe.number_of(keys[waits]) == 0]] = False
        found[updates[keys[updates] & probe.UPDATE_ABORTED != 0]] = False
        if len(seqs) and seqs.min() <= self.high and seqs.max() >= self.low:
            found &= (seqs < self.low) | (seqs > self.high)
        return found


def _code(name: str, *, sealed: bool) -> int:
    if name.startswith(probe.COMMUNICATION):
        return _STEP
    return _STEPS.get(name, _SEALED.get(name, 0) if sealed else 0)


def last_of(starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> int:
    """The last moment that records show, on the monotonic clock."""
    last = int(ends.max())
    if last < FAR:
        return last
    near = np.where(ends < FAR, ends, starts)  # what has a damaged duration began at least
    return int(near.max(where=near < FAR, initial=0))
