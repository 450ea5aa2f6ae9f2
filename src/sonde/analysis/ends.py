"""How processes ended, as far as they could not say it themselves: by those that had started them, and on a full disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sonde.analysis import tables
from sonde.store import probe
from sonde.store.alive import DIED, ENDED, LAUNCHER, TERMINATED, UNKNOWN

UNWRITTEN = "how it ended could not be written: the disk was full, or a limit of the size of files was reached"
MARKS = f"""
    SELECT host, key, start_ns, try_cast(args->>'$.code' AS BIGINT), try_cast(args->>'$.signal' AS BIGINT),
           args->>'$.{probe.EXIT_BY}', process
    FROM {tables.BESIDE} WHERE kind = 'mark' AND cat = '{probe.PROCESS}' AND name = '{probe.EXIT}' AND key IS NOT NULL
    ORDER BY start_ns, process, seq
"""

Row = dict[str, Any]


def tell_ends(rows: Sequence[Row], marks: Sequence[tuple[Any, ...]]) -> None:
    """Put into the rows how processes ended, as those saw it that had started them."""
    asked = []
    for host, pid, moment, code, signal, by, teller in marks:
        known = [row for row in rows if (row["host"], row["pid"]) == (host, pid) and began(row) <= moment]
        row = max(known, key=began, default=None)
        if row is not None and row["exit_code"] is None and row["signal"] is None:
            row["exit_code"], row["signal"] = code, signal
            if code == 0 and row["state"] == DIED:
                # It could not say so itself: torch ends persistent workers in the middle of what they do.
                row["state"] = ENDED
            if by == probe.PARENT:
                asked.append((row, teller))
    _tell_terminated(rows, asked)


def tell_unwritten(rows: Sequence[Row]) -> None:
    """Of a process whose end nobody could write for want of space, it is not known that it died."""
    full = {row["host"] for row in rows if row["role"] == LAUNCHER and _found_no_room(row)}
    for row in rows:
        told = any(row[name] is not None for name in ("exit_code", "signal", "exception"))
        if row["state"] == DIED and not told and (_found_no_room(row) or row["host"] in full):
            row["state"] = UNKNOWN
            row["notes"].append(UNWRITTEN)


def began(row: Row) -> int:
    """When a process began to record; 0: that is not known."""
    return row["start_ns"] if isinstance(row["start_ns"], int) else 0


def _tell_terminated(rows: Sequence[Row], asked: Sequence[tuple[Row, str]]) -> None:
    """Processes were ended by their parents. That is a good end, if the parent had one: else it is a part of that failure."""
    known = {row["process"]: row for row in rows}
    for row, teller in reversed(asked):  # a parent ends after its children: what became of it is told first
        if teller in known and _well(known[teller]):
            row["reason"], row["state"] = TERMINATED, ENDED


def _well(row: Row) -> bool:
    """Did a process end without a failure, or not yet, as far as is known?"""
    if row["reason"] == TERMINATED:
        return True
    return row["state"] != DIED and row["signal"] is None and not row["exit_code"] and row["exception"] is None


def _found_no_room(row: Row) -> bool:
    """Whether a process could not write; without a single ring, it could write nothing at all."""
    return bool(row["lost_space"] or (row["lost_ring"] and not row["events"]))
