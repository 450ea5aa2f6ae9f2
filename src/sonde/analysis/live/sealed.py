"""The processes of a sealed run, read like live ones: the first read returns their newest events, later ones nothing.

Those of one part are read together, when the first of them is looked at.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.live.tail import Fresh, nothing, share
from sonde.analysis.records.schema import quoted
from sonde.analysis.run import Run
from sonde.lazy import numpy as np
from sonde.store import probe, record
from sonde.store.process import Info, Moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MEMORY = 100_000_000  # bytes that the database may use
CATEGORIES = (
    probe.PROBE, probe.OFF, probe.MEMORY, probe.SYSTEM, probe.LAYER, probe.LAYER_BACKWARD, probe.LAYER_INFO, probe.PROCESS,
)  # fmt: skip
_KINDS = {"span": record.SPAN, "counter": record.COUNTER, "mark": record.MARK}
_KIND = f"CASE kind {' '.join(f'WHEN {word!r} THEN {number}' for word, number in _KINDS.items())} END"
# As in the files of a process; a counter has its value instead of a duration.
_RECORD = {
    "start": "start_ns",
    "dur": "coalesce(dur_ns, 0)",
    "key": f"coalesce(key, {record.NO_KEY})",
    "seq": "seq",
    "parent": "coalesce(parent, 0)",
    "step": f"coalesce(step, {record.NO_STEP})",
    "epoch": f"coalesce(epoch, {record.NO_EPOCH})",
    "kind": f"{_KIND} + CASE WHEN error THEN {record.ERROR} ELSE 0 END",
}
_READ = ("process", "seq", "cat", "name", "start_ns", "dur_ns", "value", "key", "parent", "step", "epoch", "lane", "kind", "error", "args", "open")  # fmt: skip


class SealedTail:
    """The same as a Tail, for a process whose records are in tables now."""

    def __init__(self, part: _LivePart, row: dict[str, Any]) -> None:
        self.folder = Path(row["process"])
        self.info = _info(row)
        self.names: dict[int, tuple[str, str]] = {}
        self.open = nothing()
        self.lost = {reason: row.get(f"lost_{reason}") or 0 for reason in ("space", "cap", "ring", "args")}
        self.skipped = 0
        self.unread = max(0, (row["events"] or 0) - part.most)
        self._part: _LivePart | None = part
        self._args: Sequence[str] = ()

    def look(self) -> Fresh:
        """All at first, then nothing."""
        if self._part is None:
            return nothing()
        found = self._part.take(str(self.folder))
        self._part = None
        if found is None:
            return nothing()
        fresh, self.names, self._args = found
        return fresh

    def args(self, id: int) -> dict[str, Any]:
        """The arguments of a record; none if it has none."""
        found: dict[str, Any] = json.loads(self._args[id]) if self._args[id] else {}
        return found


Found = tuple[Fresh, dict[int, tuple[str, str]], list[str]]  # records, their names by number, and their arguments


class _LivePart:
    """The newest records of some processes, which are read at once. `most`: of each."""

    def __init__(self, opened: _OpenRun, processes: set[str], most: int) -> None:
        self.most = most
        self._opened: _OpenRun | None = opened
        self._processes = processes
        self._found: dict[str, Found] = {}

    def take(self, process: str) -> Found | None:
        """What was read of a process; it is not kept."""
        if self._opened is not None:
            self._found = dict(self._read(self._opened.run))
            self._opened.let_go()
            self._opened = None
        return self._found.pop(process, None)

    def _read(self, run: Run) -> list[tuple[str, Found]]:
        columns = ", ".join(f"{value} AS {name}" for name, value in _RECORD.items())
        files = [
            select
            for table in ("beside", "events")
            for select in run.database.parts.selects(table, _READ, self._processes)
        ]
        if not files:  # it was sealed by a version that knew no parts
            run.database.make("events")
            files = [f"SELECT {', '.join(_READ)} FROM events"]
        source = f"({' UNION ALL '.join(files)})"
        of = f"process IN ({', '.join(map(quoted, sorted(self._processes)))})"
        found = run.database.connection.execute(
            f"""
            WITH newest AS (SELECT process, max(seq) - {self.most} AS before FROM {source} WHERE {of} GROUP BY process)
            SELECT process, cat, coalesce(name, '') AS name, coalesce(lane, 0) AS lane, coalesce(args, '') AS args, value IS NOT NULL AS valued,
                   coalesce(value, 0) AS value, {columns}
            FROM {source} JOIN newest USING (process)
            WHERE {of} AND seq > before AND NOT open AND cat IN {CATEGORIES} ORDER BY process, seq
            """
        ).fetchnumpy()
        return _by_process(found)


def _by_process(found: Mapping[str, Any]) -> list[tuple[str, Found]]:
    """The rows of each process, which lie together, as records."""
    processes = np.asarray(found["process"])
    borders = (
        [0, *(np.flatnonzero(processes[1:] != processes[:-1]) + 1).tolist(), len(processes)] if len(processes) else []
    )
    return [
        (str(processes[first]), _records({name: column[first:last] for name, column in found.items()}))
        for first, last in itertools.pairwise(borders)
    ]


def _records(rows: Mapping[str, NDArray[Any]]) -> Found:
    ids: dict[tuple[str, str], int] = {}
    texts = [""]
    records = np.zeros(len(rows["seq"]), dtype=list(record.RECORD_FIELDS))
    for name in _RECORD:
        records[name] = rows[name]
    valued = np.asarray(rows["valued"], dtype=bool)
    records["dur"][valued] = np.asarray(rows["value"], dtype=np.float64)[valued].view("<i8")
    records["name"] = [ids.setdefault(pair, len(ids) + 1) for pair in zip(rows["cat"], rows["name"], strict=True)]
    for place in np.flatnonzero(np.asarray(rows["args"]) != ""):
        records["args"][place] = len(texts)
        texts.append(str(rows["args"][place]))
    threads = np.asarray(rows["lane"]).astype(np.uint32)
    return Fresh(records, threads), {id: name for name, id in ids.items()}, texts


class _OpenRun:
    """A run that is open until each of its parts was read."""

    def __init__(self, path: Path) -> None:
        self.run = Run([path], threads=1, memory=MEMORY)
        self.parts = 0

    def let_go(self) -> None:
        """One more part was read."""
        self.parts -= 1
        if not self.parts:
            self.run.close()


def _info(row: dict[str, Any]) -> Info:
    """What was known of the process. Its clock is the wall clock, as that of its events."""
    known: dict[str, Any] = {name: row.get(name) for name in Info._fields}
    for name in ("start", "end"):
        moment = row.get(f"{name}_ns")
        known[name] = None if moment is None else Moment(moment, moment)
    return Info(**known)


def sealed_tails(path: Path) -> list[SealedTail]:
    """The processes of a sealed run that are in its tables."""
    opened = _OpenRun(path)
    rows = {row["process"]: row for row in opened.run.rows if row["folder"] is not None}  # the others joined later
    together = opened.run.database.parts.together()
    others = rows.keys() - set().union(*together)
    found = []
    for processes in [*together, *([others] if others else [])]:
        opened.parts += 1
        part = _LivePart(opened, processes, share(len(rows)) // record.RECORD_SIZE)
        found += [SealedTail(part, rows[process]) for process in sorted(processes)]
    return found
