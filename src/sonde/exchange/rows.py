"""The events of a run one after the other, as every export needs them: thread by thread, in bounded memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.questions.hosts import host_clocks, to_reference
from sonde.analysis.records import label
from sonde.analysis.records.schema import quoted
from sonde.exchange import jsonvalues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.analysis.run import Run

BATCH = 10_000  # events at a time in Python
PIECE = 500_000  # events at a time in a sort


class EventRow(NamedTuple):
    """One event. `lane` numbers the threads of a process; `end` of an open span is the last time its process was seen."""

    process: str
    lane: int
    tid: int
    thread: str
    seq: int
    parent: int | None
    depth: int
    kind: str
    cat: str
    name: str
    start: int
    end: int
    value: float | None
    key: int | None
    epoch: int | None
    step: int | None
    open: bool
    error: bool
    meta: bool
    args: str | None


class ExportedProcess(NamedTuple):
    """One process of the run; `id` is the name of its folder, `end` the last time it was seen."""

    id: str
    host: str
    pid: int
    label: str
    worker: int | None = None
    start: int = 0
    end: int = 0


def counted(run: Run) -> int:
    """How many events there are."""
    ((count,),) = run.sql("SELECT count(*) FROM events").fetchall()
    return int(count)


def origin(run: Run) -> int:
    """When the first event was."""
    moved = moving(run)
    firsts = run.sql("SELECT process, min(start_ns) FROM events GROUP BY process").fetchall()
    return min((moved(process, int(first)) for process, first in firsts), default=0)


def moving(run: Run) -> Callable[[str, int], int]:
    """What moves a moment of a process to the clock of the host of rank 0, as far as it is known how these clocks differ."""
    return to_reference(run) or _as_it_is


def _as_it_is(_process: str, moment: int) -> int:
    return moment


def clocks(run: Run) -> dict[str, dict[str, object]]:
    """By how much the clock of each host was moved, at first; nothing of a run of one host."""
    hosts = host_clocks(run)
    known = [one for one in hosts if len({two.host for two in hosts}) > 1]
    about = ("offset_ns", "drift_ppm", "error_ns", "source")
    return {one.host: {name: getattr(one, name) for name in about} for one in reversed(known)}


def arguments(row: EventRow) -> dict[str, object]:
    """What a viewer shows of an event: step, epoch, key and flags, then its own arguments."""
    found: dict[str, object] = {}
    if row.step is not None:
        found["step"] = row.step
    if row.epoch is not None:
        found["epoch"] = row.epoch
    if row.key is not None:
        found["count" if row.name.endswith((".iter", ".block")) else "key"] = jsonvalues.plain(row.key)
    if row.error:
        found["error"] = True
    if row.open:
        found["open"] = True
    if row.kind == "counter":  # only one that no viewer can draw comes here
        found["value"] = jsonvalues.plain(row.value)
    if row.args:
        found |= jsonvalues.arguments(row.args)
    return found


def batches(run: Run) -> Iterator[list[EventRow]]:
    """All events, ordered by process, thread, start; a few thousand at a time.

    Sorting needs memory for what it sorts, so it is done piece by piece.
    """
    moved = to_reference(run)
    for piece in _pieces(run):
        found = run.sql(_query(piece)).iter_rows(BATCH)
        while batch := [EventRow(*one) for one in itertools.islice(found, BATCH)]:
            yield batch if moved is None else [_move(row, moved) for row in batch]


def _move(row: EventRow, moved: Callable[[str, int], int]) -> EventRow:
    start = moved(row.process, row.start)
    return row._replace(start=start, end=max(start, moved(row.process, row.end)))


def processes(run: Run) -> list[ExportedProcess]:
    """All processes, in the order in which a viewer should list them: by rank, main ones before their workers."""
    found = run.sql(
        """
        SELECT process, host, coalesce(pid, 0), role, rank, worker, coalesce(start_ns, 0),
               greatest(coalesce(end_ns, last_ns, start_ns, 0), coalesce(last_ns, 0))
        FROM processes ORDER BY rank NULLS FIRST, worker NULLS FIRST, start_ns, process
        """
    ).fetchall()
    moved = moving(run)
    return [
        ExportedProcess(id, host, pid, label.process(role, rank, worker), worker, moved(id, start), moved(id, end))
        for id, host, pid, role, rank, worker, start, end in found
    ]


class _EventPosition(NamedTuple):
    """A place in the order of the events."""

    process: str
    lane: int
    start: int

    def before(self) -> str:
        """The condition that an event lies before this place."""
        process = quoted(self.process)
        return (
            f"(process < {process} OR (process = {process} AND (lane < {self.lane} "
            f"OR (lane = {self.lane} AND start_ns < {self.start}))))"
        )


class _EventRange(NamedTuple):
    """The events from one place up to another, without that one; None is the end."""

    first: _EventPosition
    end: _EventPosition | None


def _pieces(run: Run) -> list[_EventRange]:
    """Pieces of at most about `PIECE` events: many short threads, or a stretch of a long one."""
    threads = run.sql(
        f"SELECT process, lane, count(*), min(start_ns) FROM ({_EVENTS}) GROUP BY ALL ORDER BY process, lane"
    ).fetchall()
    places: list[_EventPosition] = []
    held = PIECE
    for process, lane, count, first in threads:
        if held + count > PIECE:
            places.append(_EventPosition(process, lane, first))
            held = 0
        held += count
        if count > PIECE:
            places += [_EventPosition(process, lane, start) for start in _cuts(run, process, lane, count, first)]
            held = PIECE
    return [_EventRange(first, end) for first, end in itertools.zip_longest(places, places[1:])]


def _cuts(run: Run, process: str, lane: int, count: int, first: int) -> list[int]:
    """Times that cut the events of a thread into about equal parts."""
    parts = -(-count // PIECE)
    shares = ", ".join(str(part / parts) for part in range(1, parts))
    ((cuts,),) = run.sql(
        f"SELECT quantile_disc(start_ns, [{shares}]) FROM ({_EVENTS}) "
        f"WHERE process = {quoted(process)} AND lane = {lane}"
    ).fetchall()
    return sorted(set(cuts) - {first})


def _query(piece: _EventRange) -> str:
    within = f"NOT {piece.first.before()}" + (f" AND {piece.end.before()}" if piece.end else "")
    return f"SELECT {_COLUMNS} FROM ({_EVENTS}) WHERE {within} ORDER BY process, lane, start_ns, seq"


# HUGEINT: the numbers of a damaged file may add up to more than 64 bits hold.
_EVENTS = """
    SELECT e.* REPLACE (coalesce(e.lane, 0) AS lane),
        CASE WHEN e.kind <> 'span' THEN e.start_ns::HUGEINT
             WHEN e.open THEN greatest(coalesce(p.last_ns, e.start_ns), e.start_ns)::HUGEINT
             ELSE e.start_ns::HUGEINT + greatest(coalesce(e.dur_ns, 0), 0) END AS end_ns
    FROM events e LEFT JOIN processes p USING (process)
"""
_COLUMNS = """
    process, lane, coalesce(tid, lane), coalesce(thread, 'thread ' || lane), seq, parent, depth, kind,
    coalesce(cat, ''), coalesce(name, '(unknown)'), start_ns, end_ns, value, key, epoch, step, open, error, meta, args
"""
