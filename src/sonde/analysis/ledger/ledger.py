"""The ledger of one process: which items went into which batch.

A batch is a few rows: the number of an item, and how many follow it one by one. That is one row for each item of a shuffled
dataset, and one for each batch of a loop in order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import ledger, probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NO_DIGEST, SAMPLE, WHOLE = 0, 1, 2  # how much of a batch its digest is of
HIGHEST = 2**63 - 1
MOST_LISTED = 1 << 22  # items of one batch; a count beyond it is damage


class LedgerBatch(NamedTuple):
    """One batch of a ledger. Of items whose keys are no numbers, `indices` is None.

    Both are None if an earlier version sealed it as a place in an order: its items are not available any more.
    """

    indices: list[int] | None
    keys: list[Any] | None
    worker: int | None
    flags: int
    size: int
    digest: int | None
    digest_of: int

    @property
    def stream(self) -> bool:
        """Is it from an iterable dataset?"""
        return bool(self.flags & ledger.STREAM)

    @property
    def alone(self) -> bool:
        """Was it made without a collate of several items?"""
        return bool(self.flags & ledger.ALONE)


class Ledger:
    """What one process wrote down: arrays with one entry per batch, and `first` and `run` with one per row.

    Where `shuffle` is not 0, an earlier version kept the batch as a place in an order, which nobody makes again.
    """

    def __init__(
        self,
        heads: dict[str, NDArray[Any]],
        start: Ints,
        first: NDArray[Any],
        run: NDArray[Any],
        texts: dict[int, str],
    ) -> None:
        """`start` has one more entry: where the rows end."""
        self.key, self.worker, self.flags = heads["key"], heads["worker"], heads["flags"]
        self.digest, self.digest_of, self.shuffle = heads["digest"], heads["digest_of"], heads["shuffle"]
        self.start, self.first, self.run, self.texts = start, first, run, texts
        self._places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.key)

    def __eq__(self, other: object) -> bool:
        names = ("key", "worker", "flags", "digest", "digest_of", "shuffle", "start", "first", "run")
        return (
            isinstance(other, Ledger)
            and self.texts == other.texts
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)
        )

    __hash__ = None  # type: ignore[assignment]

    def batch(self, key: int) -> LedgerBatch | None:
        """The batch with this key; None if there is none, or more than one."""
        place = self.places.get(key, -1)
        if place < 0:
            return None
        text = self.texts.get(place)
        indices = self._indices(place) if text is None else None
        size = sum(self.run[self.start[place] : self.start[place + 1]].tolist())
        worker, of = int(self.worker[place]), int(self.digest_of[place])
        return LedgerBatch(
            indices,
            None if text is None else _keys(text, size),
            None if worker < 0 else worker,
            int(self.flags[place]),
            size,
            int(self.digest[place]) if of else None,
            of,
        )

    def indices(self, key: int) -> list[int] | None:
        """The numbers of the items of a batch; None: not known."""
        place = self.places.get(key, -1)
        return None if place < 0 or place in self.texts else self._indices(place)

    def items(self, place: int) -> list[Any]:
        """The items of the batch at a place: their numbers or keys; none, if they are not known."""
        text = self.texts.get(place)
        if text is None:
            return self._indices(place) or []
        return _keys(text, sum(self.run[self.start[place] : self.start[place + 1]].tolist()))

    def largest(self, loader: int) -> int:
        """How many items the largest batch of a loader has."""
        total = np.append(0, np.cumsum(self.run, dtype=np.int64))
        sizes = np.diff(total[self.start])[probe.loader_of(self.key) == loader]
        return int(sizes.max(initial=0))

    @property
    def places(self) -> dict[int, int]:
        """For each key its place; -1 for one that stands there twice."""
        if self._places is None:
            keys = self.key.tolist()
            self._places = dict(zip(keys, range(len(keys)), strict=True))
            if len(self._places) < len(keys):
                seen: set[int] = set()
                twice = {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
                self._places |= dict.fromkeys(twice, -1)
        return self._places

    def _indices(self, place: int) -> list[int] | None:
        low, high = int(self.start[place]), int(self.start[place + 1])
        begin, count = int(self.first[low]), int(self.run[low])
        if self.shuffle[place]:
            return None
        if high - low == 1 and count != 1:
            return list(range(begin, begin + count)) if count <= MOST_LISTED else None
        return self.first[low:high].tolist()  # type: ignore[no-any-return]


def _keys(text: str, size: int) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found[:size] if isinstance(found, list) else []


def narrow(column: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in as few bytes as they need."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    fitting = (type for type, limit in ((np.uint8, 2**8), (np.uint16, 2**16), (np.uint32, 2**32)) if high < limit)
    return column.astype(np.int64 if low < 0 else next(fitting, np.int64), copy=False)
