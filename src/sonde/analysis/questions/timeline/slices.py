"""Spans over time in as much detail as there are pixels: narrow ones become one slice that says how many they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.timeline.detail import spans_between
from sonde.analysis.questions.timeline.lanes import condition, lane_ids
from sonde.analysis.records.owners import owners
from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.questions.timeline.lanes import Lane
    from sonde.analysis.run import Run

Name = tuple[str, str]  # category and name
_BETWEEN = "\x1f"
_BOTH = "coalesce(cat, '') || chr(31) || coalesce(name, '')"  # as one text: DuckDB is slow with pairs


def slices(
    run: Run, some: list[Lane], first: int, last: int, pixels: int
) -> tuple[list[Name], dict[str, list[list[Any]]]]:
    """Names, and for each lane (start, dur, depth, place of the name, count, seq, busy); times since the start of the run."""
    started = run.started or 0
    width = max((last - first) // pixels, 1)
    low = first + started
    spans = spans_between(run, some, low, last + started, width)
    rows = (
        []
        if not spans
        else run.database.connection.execute(
            f"""
        WITH found AS (
            SELECT *, CASE WHEN NOT single OR end_ns - start_ns < {width} THEN (start_ns - {low}) // {width} ELSE -1 - seq END AS piece
            FROM ({spans})
        )
        SELECT process, lane, min(start_ns) - {started}, max(end_ns) - {started}, depth, arg_max({_BOTH}, coalesce(longest_ns, 0)),
               sum(count)::BIGINT, min(seq), sum(busy_ns)::BIGINT
        FROM found GROUP BY process, lane, depth, piece ORDER BY process, lane, 3
        """
        ).fetchall()
    )
    names: dict[str, int] = {}
    place = lane_ids(run)
    found: dict[str, list[list[Any]]] = {one.id: [] for one in some}
    for process, lane, start, end, depth, name, count, seq, busy in rows:
        number = names.setdefault(name, len(names))
        dur = None if end is None else end - start
        found[place[process, lane]].append([start, dur, depth, number, count, seq if count == 1 else None, busy])
    return [_pair(name) for name in names], found


def _pair(both: str) -> Name:
    cat, _, name = both.partition(_BETWEEN)
    return cat, name


def sums(run: Run, some: list[Lane], first: int, last: int) -> list[dict[str, Any]]:
    """For each name: how many spans, and how long they are inside of this stretch."""
    started = run.started or 0
    low, high = first + started, last + started
    spans = spans_between(run, some, low, high, 1)
    rows = (
        []
        if not spans
        else run.database.connection.execute(
            f"""
        SELECT name, cat, count(*), sum(greatest(least(end_ns, {high}) - greatest(start_ns, {low}), 0))::BIGINT, max(busy_ns)
        FROM ({spans}) GROUP BY name, cat ORDER BY 4 DESC NULLS LAST, 1 LIMIT 500
        """
        ).fetchall()
    )
    return [dict(zip(("name", "cat", "count", "busy_ns", "longest_ns"), row, strict=True)) for row in rows]


def names_like(run: Run, sought: str, limit: int) -> list[dict[str, Any]]:
    """Names that hold a text, the largest total first, and the first and the longest span of each."""
    started = run.started or 0
    place = "(process, coalesce(lane, 0), seq, start_ns, dur_ns)"
    rows = run.sql(
        f"""
        SELECT name, cat, count(*), sum(dur_ns)::BIGINT, max(dur_ns), arg_min({place}, start_ns), arg_max({place}, coalesce(dur_ns, 0))
        FROM events WHERE kind = 'span' AND contains(lower(cat || '.' || name), {quoted(sought.lower())})
        GROUP BY name, cat ORDER BY 4 DESC NULLS LAST, 1 LIMIT {limit}
        """
    ).fetchall()
    ids = lane_ids(run)

    def spot(found: Any) -> dict[str, Any]:
        process, lane, seq, start, dur = found.values() if isinstance(found, dict) else found
        return {"lane": ids[process, lane], "start_ns": start - started, "dur_ns": dur, "seq": seq, "process": process}

    return [
        {"name": name, "cat": cat, "count": count, "total_ns": total, "longest_ns": longest}
        | {"first": spot(first), "longest": spot(slowest)}
        for name, cat, count, total, longest, first, slowest in rows
    ]


_COLUMNS = "name, cat, start_ns, dur_ns, depth, step, epoch, key, error, open, args, rank, process, thread, seq, parent"


def span(run: Run, lane: str, some: list[Lane], seq: int, start: int | None = None) -> dict[str, Any]:
    """One span, and what it leads to: an item to its batch, a batch to its step. Raises UnknownName.

    The workers of one lane count their spans anew: `start` tells which of them is meant.
    """
    started = run.started or 0
    near = "start_ns" if start is None else f"abs(start_ns - {start + started})"
    rows = run.sql(
        f"SELECT {_COLUMNS} FROM events WHERE kind = 'span' AND seq = {seq} AND {condition(some)} ORDER BY {near} LIMIT 1"
    ).fetchall()
    if not rows:
        raise UnknownName(f"There is no span {seq} in the lane {lane}.")
    event = dict(zip(_COLUMNS.split(", "), rows[0], strict=True))
    event["start_ns"] -= started
    return {"event": event, "links": _links(run, event, started)}


def _links(run: Run, event: dict[str, Any], started: int) -> list[dict[str, Any]]:
    """Item, fetch, batch and step of a span of the probes: what is known of that path, in this order."""
    if event["cat"] != probe.PROBE:
        return []
    owner = owners(run.rows).get(event["process"], event["process"])
    item, key = [], event["key"]
    if event["name"] == probe.ITEM:
        item = _spots(run, "item", f"process = {quoted(event['process'])} AND seq = {event['seq']}", {"index": key})
        around = run.sql(
            f"SELECT key FROM events WHERE process = {quoted(event['process'])} AND seq = {event['parent'] or -1}"
        ).fetchall()
        key = around[0][0] if around else None
    elif event["name"] not in (probe.FETCH, probe.INPUT_WAIT, probe.PREFETCH):
        return _of_step(run, owner, event["step"], started)
    if key is None:
        return item
    loader, round, number = probe.read_batch_key(key)
    return item + _of_batch(run, owner, f"loader = {loader} AND round = {round} AND batch = {number}", started)


def _of_step(run: Run, owner: str, step: int | None, started: int) -> list[dict[str, Any]]:
    """The path of the batch of a step, or the step alone."""
    if step is None:
        return []
    place = {"process": owner, "step": step}
    return _of_batch(run, owner, f"step = {step}", started) or _step_spot(run, owner, step, started, place)


def _of_batch(run: Run, owner: str, where: str, started: int) -> list[dict[str, Any]]:
    """Where a batch was fetched, where the trainer took it, and its step."""
    rows = run.sql(
        f"SELECT rank, loader, round, batch, step FROM batches WHERE process = {quoted(owner)} AND {where} ORDER BY start_ns LIMIT 1"
    ).fetchall()
    if not rows:
        return []
    rank, loader, round, number, step = rows[0]
    place = {"rank": rank, "process": owner, "loader": loader, "round": round, "batch": number, "step": step}
    key = probe.batch_key(loader, round, number)
    about = owners(run.rows)
    family = ", ".join(quoted(one) for one in (owner, *(worker for worker, of in about.items() if of == owner)))
    fetch = _spots(run, "fetch", f"name = '{probe.FETCH}' AND key = {key} AND process IN ({family})", place)
    wait = _spots(run, "batch", f"name = '{probe.INPUT_WAIT}' AND key = {key} AND process = {quoted(owner)}", place)
    return fetch + wait + _step_spot(run, owner, step, started, place)


def _spots(run: Run, kind: str, where: str, place: dict[str, Any]) -> list[dict[str, Any]]:
    """The first span of the probes that fits, as a stop of the path."""
    rows = run.sql(
        f"SELECT process, lane, seq, depth, start_ns - {run.started or 0}, dur_ns FROM events "
        f"WHERE kind = 'span' AND cat = '{probe.PROBE}' AND {where} ORDER BY start_ns LIMIT 1"
    ).fetchall()
    ids = lane_ids(run)
    return [
        {"kind": kind, **place, "lane": ids[process, lane or 0], "seq": seq, "depth": depth}
        | {"start_ns": start, "dur_ns": dur}
        for process, lane, seq, depth, start, dur in rows
    ]


def _step_spot(run: Run, owner: str, step: int | None, started: int, place: dict[str, Any]) -> list[dict[str, Any]]:
    """A step as the end of the path: in the lane of the spans that it is made of."""
    rows = run.sql(
        f"SELECT start_ns, dur_ns, rank FROM steps WHERE process = {quoted(owner)} AND step = {-1 if step is None else step} LIMIT 1"
    ).fetchall()
    ids = lane_ids(run)
    found = []
    for start, dur, rank in rows:
        lane = run.sql(
            f"SELECT lane FROM events WHERE kind = 'span' AND process = {quoted(owner)} AND cat = '{probe.PROBE}' "
            f"AND start_ns >= {start} AND start_ns <= {start + dur} ORDER BY dur_ns DESC LIMIT 1"
        ).fetchall()
        id = ids[owner, lane[0][0] or 0] if lane else None
        found.append(
            {"kind": "step", **place, "rank": rank, "lane": id, "seq": None, "depth": 0}
            | {"start_ns": start - started, "dur_ns": dur}
        )
    return found
