"""The slowest items of the datasets of a run, kept while it runs, and how long an item usually takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.store import record
from sonde.store.probe import read_batch_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEPT = 50
RECENT = 4096  # the newest ones, for the median


class Slow(NamedTuple):
    """One item: which one, how long it took, and the batch it was fetched for, if that is known yet."""

    ns: int
    item: int | None
    process: str
    fetch: int  # number of the record of the fetch
    batch: int | None = None


class Slowest:
    """Takes the items of all processes. `seen` counts them."""

    def __init__(self) -> None:
        import numpy as np

        self.seen = 0
        self.slowest: list[Slow] = []
        self._recent: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, process: str, items: NDArray[np.void], fetches: NDArray[np.void]) -> None:
        """Take the items of one process, and the fetches of it: those that ended, and those that are open."""
        import numpy as np

        if len(items):
            self.seen += len(items)
            self._recent = np.concatenate([self._recent, items["dur"]])[-RECENT:]
            self._take(process, items)
        self._name_batches(process, fetches)

    @property
    def median_ns(self) -> float | None:
        """How long an item took, in the middle of the newest ones."""
        import numpy as np

        return float(np.median(self._recent)) if len(self._recent) else None

    def _take(self, process: str, items: NDArray[np.void]) -> None:
        import numpy as np

        least = self.slowest[-1].ns if len(self.slowest) == KEPT else -1
        slow = items[items["dur"] > least]
        if len(slow) > KEPT:
            slow = slow[np.argpartition(slow["dur"], -KEPT)[-KEPT:]]
        found = [
            Slow(ns, None if key == record.NO_KEY else key, process, parent)
            for ns, key, parent in zip(slow["dur"].tolist(), slow["key"].tolist(), slow["parent"].tolist(), strict=True)
        ]
        self.slowest = _different(sorted([*self.slowest, *found], key=lambda one: -one.ns))[:KEPT]

    def _name_batches(self, process: str, fetches: NDArray[np.void]) -> None:
        wanted = {one.fetch for one in self.slowest if one.batch is None and one.process == process}
        if not wanted or not len(fetches):
            return
        keys = dict(zip(fetches["seq"].tolist(), fetches["key"].tolist(), strict=True))
        self.slowest = [
            one._replace(batch=read_batch_key(keys[one.fetch]).number)
            if one.process == process and one.batch is None and keys.get(one.fetch, record.NO_KEY) != record.NO_KEY
            else one
            for one in self.slowest
        ]


def _different(slow: list[Slow]) -> list[Slow]:
    """Of each item its slowest time: one that is slow in every epoch would leave no place for others."""
    seen: set[int] = set()
    found = []
    for one in slow:
        if one.item is None or one.item not in seen:
            found.append(one)
        if one.item is not None:
            seen.add(one.item)
    return found
