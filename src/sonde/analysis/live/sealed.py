"""A process of a sealed run, looked at as if it were live: its newest events come at the first look, and then nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.analysis.live.tail import FIRST_BYTES, Fresh, nothing
from sonde.analysis.run import open_run
from sonde.lazy import numpy as np
from sonde.store import probe, record
from sonde.store.process import Info, Moment

if TYPE_CHECKING:
    from sonde.analysis.run import Run

MOST = FIRST_BYTES // record.RECORD_SIZE
CATEGORIES = (
    probe.PROBE, probe.OFF, probe.MEMORY, probe.SYSTEM, probe.LAYER, probe.LAYER_BACKWARD, probe.LAYER_INFO, probe.PROCESS,
)  # fmt: skip

_EVENTS = f"""
    SELECT seq::UINTEGER AS seq, cat, name, start_ns, dur_ns, value, key, parent, step, epoch, lane, kind, error, args
    FROM events WHERE process = ? AND NOT open AND cat IN {CATEGORIES} ORDER BY seq DESC LIMIT {MOST}
"""


class SealedTail:
    """The same as a Tail, for a process whose records are in tables now."""

    def __init__(self, run: Run, row: dict[str, Any]) -> None:
        self.folder = Path(row["process"])
        self.info = _info(row)
        self.names: dict[int, tuple[str, str]] = {}
        self.open = nothing()
        self.lost = {reason: row.get(f"lost_{reason}") or 0 for reason in ("space", "cap", "ring", "args")}
        self.skipped = 0
        self._args: list[str] = [""]
        self._fresh = self._read(run)
        self.unread = max(0, (row["events"] or 0) - MOST)

    def look(self) -> Fresh:
        """All at first, then nothing."""
        fresh, self._fresh = self._fresh, nothing()
        return fresh

    def args(self, id: int) -> dict[str, Any]:
        """The arguments of a record; none if it has none."""
        found: dict[str, Any] = json.loads(self._args[id]) if self._args[id] else {}
        return found

    def _read(self, run: Run) -> Fresh:
        run.database.make("events")
        rows = run.database.connection.execute(_EVENTS, [self.folder.name]).fetchall()[::-1]
        records = np.zeros(len(rows), dtype=list(record.RECORD_FIELDS))
        threads = np.zeros(len(rows), dtype=np.uint32)
        ids: dict[tuple[str, str], int] = {}
        for place, (seq, cat, name, start, dur, value, key, parent, step, epoch, lane, kind, error, args) in enumerate(
            rows
        ):
            id = ids.setdefault((cat, name or ""), len(ids) + 1)
            records[place] = (
                start,
                dur or 0,
                record.NO_KEY if key is None else key,
                id,
                self._keep(args),
                seq,
                parent or 0,
                record.NO_STEP if step is None else step,
                record.NO_EPOCH if epoch is None else epoch,
                _KINDS[kind] | (record.ERROR if error else 0),
                0,
            )
            threads[place] = lane or 0
            if value is not None:
                records["dur"][place : place + 1].view(np.float64)[0] = value
        self.names = {id: name for name, id in ids.items()}
        return Fresh(records, threads)

    def _keep(self, args: str | None) -> int:
        if not args:
            return 0
        self._args.append(args)
        return len(self._args) - 1


_KINDS = {"span": record.SPAN, "counter": record.COUNTER, "mark": record.MARK}


def _info(row: dict[str, Any]) -> Info:
    """What was known of the process. Its clock is the wall clock, as that of its events."""
    known: dict[str, Any] = {name: row.get(name) for name in Info._fields}
    for name in ("start", "end"):
        moment = row.get(f"{name}_ns")
        known[name] = None if moment is None else Moment(moment, moment)
    return Info(**known)


def sealed_tails(path: Path) -> list[SealedTail]:
    """The processes of a sealed run that are in its tables."""
    with open_run(path) as run:
        return [SealedTail(run, row) for row in run.rows if "folder" in row]  # the others joined after it was sealed
