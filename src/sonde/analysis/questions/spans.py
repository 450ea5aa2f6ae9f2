"""Open spans: entered and not left, in programs that died, hang, or still run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.schema import BESIDE
from sonde.store.alive import RUNNING

if TYPE_CHECKING:
    from sonde.analysis.run import Run


class OpenSpan(NamedTuple):
    """A span without an end. `innermost`: no other open span lies in it, so this is where the thread was."""

    process: str
    host: str
    pid: int | None
    rank: int | None
    role: str | None
    worker: int | None
    state: str
    tid: int | None
    thread: str | None
    cat: str | None
    name: str | None
    seq: int
    depth: int
    innermost: bool
    start_ns: int
    for_ns: int | None
    key: int | None
    epoch: int | None
    step: int | None
    args: str | None


_OPEN = f"""
    WITH found AS (SELECT * FROM {BESIDE} WHERE open),
         hosts AS (SELECT host, max(last_ns) AS seen_ns FROM processes GROUP BY host)
    SELECT p.process, p.host, p.pid, p.rank, p.role, p.worker, p.state, e.tid, e.thread, e.cat, e.name, e.seq, e.depth,
           NOT EXISTS (SELECT 1 FROM found c WHERE c.process = e.process AND c.parent = e.seq),
           e.start_ns, coalesce(p.end_ns, h.seen_ns), e.key, e.epoch, e.step, e.args
    FROM found e JOIN processes p ON p.process = e.process LEFT JOIN hosts h ON h.host = p.host
    ORDER BY p.process, e.lane, e.depth, e.seq
"""


def open_spans(run: Run, now_ns: int | None = None) -> list[OpenSpan]:
    """All open spans, by process and thread, outer ones first.

    A span of a process that still runs lasts until now. One of a process that ended lasts until its end, one of a
    process that died until the last event of its host: the death itself leaves no record.
    """
    offsets = {row["process"]: row["offset_ns"] for row in run.rows}
    found = [dict(zip(OpenSpan._fields, values, strict=True)) for values in run.sql(_OPEN).fetchall()]
    for span in found:
        until = span["for_ns"]
        if span["state"] == RUNNING:
            # On the same clock as the recording: the wall clock may have been set meanwhile.
            until = time.monotonic_ns() + offsets[span["process"]] if now_ns is None else now_ns
        span["for_ns"] = None if until is None else max(0, until - span["start_ns"])
    return [OpenSpan(**span) for span in found]
