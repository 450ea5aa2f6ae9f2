"""Counts the records of a run by their names: which names each thread of each process has, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    from numpy.typing import NDArray

KINDS = {record.SPAN: "span", record.COUNTER: "counter", record.MARK: "mark"}
_FLAGS = record.KIND_MASK | record.OPEN


class NameCount(NamedTuple):
    """How many records of one name a thread of a process has. `open`: entered and not left."""

    kind: str
    cat: str
    name: str
    lane: int
    open: bool
    count: int  # type: ignore[assignment]  # that tuples have a count() of their own is of no use here


class NameCounter:
    """Takes the chunks of one process."""

    def __init__(self, names: Mapping[int, tuple[str, str]]) -> None:
        self._names = names
        self._size = (max(names, default=0) + 2) * (_FLAGS + 1)
        self._counts: dict[int, NDArray[np.int64]] = {}

    def add(self, names: NDArray[np.uint32], kinds: NDArray[np.uint8], lanes: NDArray[np.uint32]) -> None:
        """Take some records: their name ids, kind bytes and threads."""
        cells = np.minimum(names, self._size // (_FLAGS + 1) - 1).astype(np.int64)
        cells *= _FLAGS + 1
        cells += kinds & _FLAGS
        if lanes[0] == lanes[-1] and np.all(lanes == lanes[0]):
            self._count(int(lanes[0]), cells)
            return
        for lane in np.unique(lanes).tolist():
            self._count(lane, cells[lanes == lane])

    def rows(self) -> list[NameCount]:
        """What was found."""
        found = []
        for lane, counts in sorted(self._counts.items()):
            for cell in counts.nonzero()[0].tolist():
                id, flags = divmod(cell, _FLAGS + 1)
                cat, name = self._names.get(id, ("", ""))
                kind, opened = KINDS[flags & record.KIND_MASK], flags & record.OPEN != 0
                found.append(NameCount(kind, cat, name, lane, opened, int(counts[cell])))
        return found

    def _count(self, lane: int, cells: NDArray[np.int64]) -> None:
        found = np.bincount(cells, minlength=self._size)
        self._counts[lane] = self._counts[lane] + found if lane in self._counts else found


def count_names(connection: duckdb.DuckDBPyConnection, events: str) -> dict[str, list[NameCount]]:
    """The same of processes in a sealed file. `events`: the query that gives them."""
    rows = connection.execute(
        f"""
        SELECT process, kind, coalesce(cat, ''), coalesce(name, ''), coalesce(lane, 0), open, count(*) FROM ({events}) GROUP BY ALL
        """
    ).fetchall()
    found: dict[str, list[NameCount]] = {}
    for process, *row in sorted(rows):
        found.setdefault(process, []).append(NameCount(*row))
    return found
