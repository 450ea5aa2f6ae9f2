"""The slowest items of the datasets of a run that grows, by the median of their own loads, and the median load time of an item."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record
from sonde.store.probe import read_batch_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

LISTED = 50
RECENT = 1 << 15  # the newest loads, which are looked at


class LiveItem(NamedTuple):
    """One item: which one, how long it takes to load, who loaded it, and for which batch, if that is known yet."""

    ns: int
    item: int | None
    process: str
    batch: int | None = None


class Slowest:
    """Takes the items of all processes. `seen` counts them."""

    def __init__(self) -> None:
        self.seen = 0
        self._loads: NDArray[np.int64] = np.empty((0, 4), np.int64)  # item, ns, process, fetch
        self._processes: list[str] = []
        self._batches: dict[tuple[int, int], int] = {}  # of the newest fetches

    def add(self, process: str, items: NDArray[np.void], fetches: NDArray[np.void]) -> None:
        """Take the items of one process, and the fetches of it: those that ended, and those that are open."""
        if process not in self._processes:
            self._processes.append(process)
        number = self._processes.index(process)
        if len(items):
            self.seen += len(items)
            whose = np.full(len(items), number)
            fresh = np.stack([items["key"], items["dur"].astype(np.int64), whose, items["parent"]], axis=1)
            self._loads = np.concatenate([self._loads, fresh])[-RECENT:]
        for fetch, key in zip(fetches["seq"].tolist(), fetches["key"].tolist(), strict=True):
            if key != record.NO_KEY:
                self._batches[number, fetch] = read_batch_key(key).number
        while len(self._batches) > RECENT:
            del self._batches[next(iter(self._batches))]

    @property
    def median_ns(self) -> float | None:
        """How long a load took, in the middle of the newest ones."""
        return float(np.median(self._loads[:, 1])) if len(self._loads) else None

    @property
    def slowest(self) -> list[LiveItem]:
        """Each item with its median load; of two loads, that is the faster one."""
        loads = self._loads[np.lexsort((self._loads[:, 1], self._loads[:, 0]))]
        item = loads[:, 0]
        first = np.flatnonzero(np.append(True, (item[1:] != item[:-1]) | (item[1:] == record.NO_KEY))[: len(item)])
        middle = loads[(first + np.append(first[1:], len(item))[: len(first)] - 1) // 2]
        found = middle[np.argsort(-middle[:, 1], kind="stable")[:LISTED]]
        return [
            LiveItem(
                ns, None if key == record.NO_KEY else key, self._processes[whose], self._batches.get((whose, fetch))
            )
            for key, ns, whose, fetch in found.tolist()
        ]
