"""Finds the processes that trained, and takes from the events what their steps are made of.

A process that the probes saw is read from their records. A phase that they did not see there is taken from the vocabulary
(`compute.forward`, `comm.*`, ...), and without any update, steps are told by the numbers that the program gave.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sonde.analysis.tables import PHASES, quoted
from sonde.analysis.timeline import INPUT_WAIT, ITER, NONE, Spans, Timeline, Updates
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Row = dict[str, Any]

NO_VALUE = f"({NONE + 1} - 1)"  # as SQL
WORKER = "worker"
PIECE = 1 << 17  # steps whose spans are asked for together
_VOCABULARY = {
    ("compute", "forward"): "forward",
    ("compute", "backward"): "backward",
    ("compute", "step"): "optimizer",
    ("dataloader", "fetch"): "input_wait",
    ("pipeline", "evaluate"): "evaluation",
    ("pipeline", "test"): "evaluation",
}
_CATEGORIES = {"data": "input_wait", "comm": "communication", "checkpoint": "checkpoint", "device": "h2d"}
_LOOKED_AT = (probe.PROBE, "compute", "dataloader", "pipeline", *_CATEGORIES)
_WORK = tuple(PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))


class Named(NamedTuple):
    """How many events of one name a thread of a process has."""

    kind: str
    cat: str
    name: str
    lane: int
    count: int  # type: ignore[assignment]  # that tuples have a count() of their own is of no use here


class Trainer(NamedTuple):
    """A process that trained. `number` is its place among the processes, `lanes` are the threads that did it."""

    number: int
    row: Row
    timeline: Timeline
    lanes: list[int]
    names: set[str]  # of the probes' records that it has


def trainers(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> Iterator[Trainer]:
    """One after the other, each read when its turn comes."""
    found = _names(connection)
    for number, row in enumerate(rows):
        named = found.get(row["process"], [])
        lanes = _lanes(named)
        if not lanes or row["role"] == WORKER:
            continue
        timeline = _timeline(connection, row["process"], _codes(named), lanes)
        yield Trainer(number, row, timeline, lanes, {one.name for one in named if one.cat == probe.PROBE})
        del timeline  # before the next one is read: they are large


def _timeline(
    connection: duckdb.DuckDBPyConnection, process: str, codes: dict[tuple[str, str], int], lanes: Sequence[int]
) -> Timeline:
    updates, lane_of = _updates(connection, process)
    spans, steps, lane_at = _spans(connection, process, codes, lanes, updates.time)
    if not len(updates.time):
        updates = told_by_steps(spans, steps)
    elif len(lanes) > 1:
        spans = in_turn(spans, lane_at, updates.time, lane_of)
    return Timeline(spans, updates)


def owners(rows: Sequence[Row]) -> dict[str, str]:
    """For each loader worker the process whose batches it fetches.

    That is its parent; where the parent is unknown (a fork server), the one that is no worker and has the same host and rank.
    """
    pids = {(row["host"], row["pid"]): row["process"] for row in rows if row["role"] != WORKER}
    places: dict[tuple[object, object], list[str]] = {}
    for row in rows:
        if row["role"] in ("main", "trainer", "child"):
            places.setdefault((row["host"], row["rank"]), []).append(row["process"])
    found = {}
    for row in rows:
        alike = places.get((row["host"], row["rank"]), [])
        owner = pids.get((row["host"], row["parent_pid"])) or (alike[0] if len(alike) == 1 else None)
        if row["role"] == WORKER and owner is not None:
            found[row["process"]] = owner
    return found


def arrays(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, NDArray[Any]]:
    """The answer to a query as arrays."""
    return cast("dict[str, NDArray[Any]]", connection.execute(query).fetchnumpy())


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def phase_of(cat: str, name: str) -> tuple[int, bool] | None:
    """The phase of spans of this name, and whether the probes wrote them."""
    if cat == probe.PROBE:
        if name in (probe.ITER, probe.PREFETCH):
            return (
                ITER if name == probe.ITER else INPUT_WAIT,
                True,
            )  # a wait in the thread that trains, whatever its name
        phase = "communication" if name.startswith(probe.COMMUNICATION) else name
        return (PHASES.index(phase), True) if phase in PHASES else None
    known = _VOCABULARY.get((cat, name)) or _CATEGORIES.get(cat)
    return (PHASES.index(known), False) if known else None


def _names(connection: duckdb.DuckDBPyConnection) -> dict[str, list[Named]]:
    rows = connection.execute(
        f"""
        SELECT process, kind, cat, name, coalesce(lane, 0), count(*) FROM events
        WHERE cat IN ({_list(_LOOKED_AT)}) AND NOT open GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    found: dict[str, list[Named]] = {}
    for process, *rest in rows:
        found.setdefault(process, []).append(Named(*rest))
    return found


def _codes(named: Sequence[Named]) -> dict[tuple[str, str], int]:
    """For each name that counts in this process its phase."""
    spans = {(one.cat, one.name): phase_of(one.cat, one.name) for one in named if one.kind == "span"}
    seen = {found[0] for found in spans.values() if found and found[1]}
    return {name: found[0] for name, found in spans.items() if found and (found[1] or found[0] not in seen)}


def _lanes(named: Sequence[Named]) -> list[int]:
    """The threads that train: those with updates, or else the one with the most forwards, backwards and optimizer calls."""
    updating = {one.lane for one in named if (one.kind, one.cat, one.name) == ("mark", probe.PROBE, probe.UPDATE)}
    if updating:
        return sorted(updating)
    codes = _codes(named)
    weights: dict[int, int] = {}
    for one in named:
        code = codes.get((one.cat, one.name))
        if one.kind == "span" and code is not None:
            weights[one.lane] = weights.get(one.lane, 0) + one.count * (1000 if code in _WORK else 1)
    return [max(weights, key=lambda lane: (weights[lane], -lane))] if weights else []


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _updates(connection: duckdb.DuckDBPyConnection, process: str) -> tuple[Updates, Ints]:
    import numpy as np

    found = arrays(
        connection,
        f"""
        SELECT start_ns, coalesce(step, {NO_VALUE}) AS step, coalesce(epoch, {NO_VALUE}) AS epoch,
               coalesce(key, 0) AS key, coalesce(lane, 0) AS lane, seq
        FROM events
        WHERE process = {quoted(process)} AND kind = 'mark' AND cat = '{probe.PROBE}' AND name = '{probe.UPDATE}'
        """,
    )
    time, seq = found["start_ns"], found.pop("seq")
    if not np.all(time[1:] > time[:-1]):
        order = np.lexsort((seq, time))
        found = {name: column[order] for name, column in found.items()}
    return Updates(found["start_ns"], found["step"], found["epoch"], found["key"]), found["lane"]


def _spans(
    connection: duckdb.DuckDBPyConnection,
    process: str,
    codes: dict[tuple[str, str], int],
    lanes: Sequence[int],
    updates: Ints,
) -> tuple[Spans, Ints, Ints]:
    """The spans of some threads, their steps and their threads, in the order in which they began."""
    import numpy as np

    cuts = updates[PIECE::PIECE].tolist()
    alone = not len(updates)
    pieces = [_piece(connection, process, codes, lanes, *ends, alone=alone) for ends in pairwise([None, *cuts, None])]
    columns = {}
    for name in tuple(pieces[0]):
        columns[name] = np.concatenate([piece.pop(name) for piece in pieces])
    spans = Spans(columns["code"], columns["start_ns"], columns["end_ns"], columns["key"])
    return spans, columns["step"], columns["lane"]


def _piece(
    connection: duckdb.DuckDBPyConnection,
    process: str,
    codes: dict[tuple[str, str], int],
    lanes: Sequence[int],
    low: int | None,
    high: int | None,
    *,
    alone: bool,
) -> dict[str, NDArray[Any]]:
    """Those that began in [low, high). Threads are told if there are several, steps if there are no updates (`alone`)."""
    import numpy as np

    lane = "coalesce(lane, 0)::UINTEGER" if len(lanes) > 1 else "0::UTINYINT"
    step = "coalesce(step, -1)::INTEGER" if alone else "0::UTINYINT"
    within = [f"start_ns >= {low}"] * (low is not None) + [f"start_ns < {high}"] * (high is not None) or ["true"]
    found = arrays(
        connection,
        f"""
        SELECT ({_case(codes)})::UTINYINT AS code, start_ns, start_ns + dur_ns AS end_ns,
               coalesce(key, {NO_VALUE}) AS key, seq::UINTEGER AS seq, {lane} AS lane, {step} AS step
        FROM events
        WHERE process = {quoted(process)} AND kind = 'span' AND NOT open AND {" AND ".join(within)}
          AND coalesce(lane, 0) IN ({", ".join(map(str, lanes))})
          AND cat IN ({_list({cat for cat, _ in codes})}) AND name IN ({_list({name for _, name in codes})})
        """
        if codes
        else _NO_SPANS,
    )
    wrong = found["code"] == _OTHER
    if wrong.any():
        found = {name: column[~wrong] for name, column in found.items()}
    seq = found.pop("seq")
    if np.all(seq[1:] > seq[:-1]):
        return found
    order = np.argsort(seq, kind="stable")
    return {name: column[order] for name, column in found.items()}


def _case(codes: dict[tuple[str, str], int]) -> str:
    """The phase of a span as SQL."""
    if len({cat for cat, _ in codes}) == 1:
        cases = " ".join(f"WHEN {quoted(name)} THEN {code}" for (_, name), code in codes.items())
        return f"CASE name {cases} ELSE {_OTHER} END"
    cases = " ".join(
        f"WHEN cat = {quoted(cat)} AND name = {quoted(name)} THEN {code}" for (cat, name), code in codes.items()
    )
    return f"CASE {cases} ELSE {_OTHER} END"


_OTHER = 255
_NO_SPANS = """
    SELECT 0::UTINYINT AS code, 0::BIGINT AS start_ns, 0::BIGINT AS end_ns, 0::BIGINT AS key, 0::UINTEGER AS seq,
           0::UINTEGER AS lane, 0::INTEGER AS step WHERE false
"""


def told_by_steps(spans: Spans, steps: Ints) -> Updates:
    """Steps of a program that counts them itself: each ends where the first span of the next one begins."""
    import numpy as np

    known = np.flatnonzero(steps >= 0)
    order = known[np.argsort(spans.start[known], kind="stable")]
    number = steps[order].astype(np.int64)
    turns = np.flatnonzero(number[1:] != number[:-1])
    time = spans.start[order[turns + 1]]
    if len(order):
        time = np.append(time, spans.end.max())
    step = number[np.append(turns, len(number) - 1)] if len(order) else number
    return Updates(time, step, np.full(len(step), NONE), np.zeros(len(step), np.int64))


def in_turn(spans: Spans, lanes: Ints, updates: Ints, lane_of: Ints) -> Spans:
    """Of several threads that trained, one after the other, only what the thread did whose turn it was."""
    import numpy as np

    turn = np.minimum(np.searchsorted(updates, spans.start), len(updates) - 1)
    return spans.take(np.flatnonzero(lanes == lane_of[turn]))


def _list(words: Iterable[str]) -> str:
    return ", ".join(quoted(word) for word in sorted(words)) or "NULL"
