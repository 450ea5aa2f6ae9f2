"""What a record costs the program: the time between two records with only Sonde's own code between them.

Between the end of `optimizer` and the mark `update`, and between the end of `input_wait` and the counter `samples`, no code
but Sonde's own runs. What lies between two such records is therefore the price of a record as that program paid it, with the
state of its caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.records.schema import quoted
from sonde.analysis.records.steponly import middle_of
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb

Gaps = dict[str, list[tuple[float, int]]]
PAIRS = ((probe.OPTIMIZER, probe.UPDATE), (probe.INPUT_WAIT, probe.SAMPLES))
_NAMES = ", ".join(quoted(name) for pair in PAIRS for name in pair)
_PAIRS = ", ".join(f"({quoted(first)}, {quoted(second)})" for first, second in PAIRS)


def measured(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows of processes those in which it is measured: no launchers, no loader workers."""
    return [row for row in rows if row["role"] not in ("launcher", "worker") and row["events"]]


def record_gaps(connection: duckdb.DuckDBPyConnection, events: str, processes: Sequence[tuple[str, int]]) -> Gaps:
    """For each process, and each kind of pair in it: the median time between the two in ns, and how many there are.

    `processes` come with the number of their events; those in the middle are looked at.
    """
    if not processes:
        return {}
    middles = ", ".join(f"({quoted(one)}, {', '.join(map(str, middle_of(count)))})" for one, count in processes)
    rows = connection.execute(
        f"""
        WITH near AS (
            SELECT process, lane, seq, depth, name, start_ns, dur_ns
            FROM {events} JOIN (VALUES {middles}) middle(process, low, high) USING (process)
            WHERE cat = '{probe.PROBE}' AND name IN ({_NAMES}) AND seq BETWEEN low AND high
        )
        SELECT a.process, median(b.start_ns - a.start_ns - a.dur_ns), count(*)
        FROM near a JOIN near b ON b.process = a.process AND b.seq = a.seq + 1 AND b.lane = a.lane
        WHERE (a.name, b.name) IN ({_PAIRS}) AND b.start_ns >= a.start_ns + a.dur_ns
          AND (a.name <> '{probe.OPTIMIZER}' OR a.depth = b.depth)  -- not inside a backward pass, which goes on behind it
        GROUP BY a.process, a.name ORDER BY a.process, a.name
        """
    ).fetchall()
    found: Gaps = {}
    for process, ns, count in rows:
        if ns is not None:
            found.setdefault(process, []).append((float(ns), int(count)))
    return found
