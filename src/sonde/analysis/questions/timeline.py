"""Spans over time in as much detail as there are pixels: narrow ones become one slice that says how many they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.questions.lanes import lane_id
from sonde.analysis.records.owners import owners
from sonde.analysis.records.schema import quoted
from sonde.errors import UnknownName
from sonde.store import probe

if TYPE_CHECKING:
    from sonde.analysis.questions.lanes import Lane
    from sonde.analysis.run import Run

Name = tuple[str, str]  # category and name


def _inside(where: str, first: int, last: int) -> str:
    return f"kind = 'span' AND {where} AND start_ns <= {last} AND (dur_ns IS NULL OR start_ns + dur_ns >= {first})"


def slices(
    run: Run, some: list[Lane], where: str, first: int, last: int, pixels: int
) -> tuple[list[Name], dict[str, list[list[Any]]]]:
    """Names, and for each lane (start, dur, depth, place of the name, count, seq); times since the start of the run."""
    started = run.started or 0
    width = max((last - first) // pixels, 1)
    low = first + started
    rows = run.sql(
        f"""
        WITH found AS (
            SELECT process, coalesce(lane, 0) AS lane, depth, cat, name, start_ns, dur_ns, seq,
                   CASE WHEN dur_ns < {width} THEN (start_ns - {low}) // {width} ELSE -1 - seq END AS piece
            FROM events WHERE {_inside(where, low, last + started)}
        )
        SELECT process, lane, min(start_ns) - {started}, max(start_ns + dur_ns) - {started}, depth, arg_max((cat, name), coalesce(dur_ns, 0)),
               count(*), min(seq)
        FROM found GROUP BY process, lane, depth, piece ORDER BY process, lane, 3
        """
    ).fetchall()
    names: dict[Name, int] = {}
    place = {pair: one.id for one in some for pair in ((process, lane or 0) for process, lane in one.threads)}
    found: dict[str, list[list[Any]]] = {one.id: [] for one in some}
    for process, lane, start, end, depth, name, count, seq in rows:
        number = names.setdefault(_pair(name), len(names))
        dur = None if end is None else end - start
        found[place[process, lane]].append([start, dur, depth, number, count, seq if count == 1 else None])
    return list(names), found


def _pair(name: Any) -> Name:
    cat, word = name.values() if isinstance(name, dict) else name
    return cat or "", word or ""


def sums(run: Run, where: str, first: int, last: int) -> list[dict[str, Any]]:
    """For each name: how many spans, and how long they are inside of this stretch."""
    started = run.started or 0
    low, high = first + started, last + started
    rows = run.sql(
        f"""
        SELECT name, cat, count(*), sum(greatest(least(start_ns + dur_ns, {high}) - greatest(start_ns, {low}), 0))::BIGINT, max(dur_ns)
        FROM events WHERE {_inside(where, low, high)} GROUP BY name, cat ORDER BY 4 DESC NULLS LAST, 1 LIMIT 500
        """
    ).fetchall()
    return [dict(zip(("name", "cat", "count", "busy_ns", "longest_ns"), row, strict=True)) for row in rows]


def names_like(run: Run, sought: str, limit: int) -> list[dict[str, Any]]:
    """Names that hold a text, the largest total first, and the first span of each."""
    started = run.started or 0
    rows = run.sql(
        f"""
        SELECT name, cat, count(*), sum(dur_ns)::BIGINT, max(dur_ns), arg_min((process, coalesce(lane, 0), seq, dur_ns), start_ns),
               min(start_ns) - {started}
        FROM events WHERE kind = 'span' AND contains(lower(cat || '.' || name), {quoted(sought.lower())})
        GROUP BY name, cat ORDER BY 4 DESC NULLS LAST, 1 LIMIT {limit}
        """
    ).fetchall()
    about, owner = {row["process"]: row for row in run.rows}, owners(run.rows)
    found = []
    for name, cat, count, total, longest, where, start in rows:
        process, lane, seq, dur = where.values() if isinstance(where, dict) else where
        first = {
            "lane": lane_id(about[process], lane, owner),
            "start_ns": start,
            "dur_ns": dur,
            "seq": seq,
            "process": process,
        }
        found.append(
            {"name": name, "cat": cat, "count": count, "total_ns": total, "longest_ns": longest, "first": first}
        )
    return found


_COLUMNS = "name, cat, start_ns, dur_ns, depth, step, epoch, key, error, open, args, rank, process, thread, seq, parent"


def span(run: Run, lane: str, some: list[Lane], seq: int) -> dict[str, Any]:
    """One span, and what it leads to: an item to its batch, a batch to its step. Raises UnknownName."""
    started = run.started or 0
    processes = ", ".join(quoted(process) for one in some for process, _ in one.threads) or "NULL"
    rows = run.sql(f"SELECT {_COLUMNS} FROM events WHERE seq = {seq} AND process IN ({processes}) LIMIT 1").fetchall()
    if not rows:
        raise UnknownName(f"There is no span {seq} in the lane {lane}.")
    event = dict(zip(_COLUMNS.split(", "), rows[0], strict=True))
    event["start_ns"] -= started
    return {"event": event, "links": _links(run, event, started)}


def _links(run: Run, event: dict[str, Any], started: int) -> list[dict[str, Any]]:
    """Item, batch and step of a span of the loader."""
    key, links = event["key"], []
    if event["cat"] != probe.PROBE:
        return []
    if event["name"] == probe.ITEM:
        links.append(
            {
                "kind": "item",
                "index": key,
                "seq": event["seq"],
                "start_ns": event["start_ns"],
                "dur_ns": event["dur_ns"],
            }
        )
        rows = run.sql(
            f"SELECT key FROM events WHERE process = {quoted(event['process'])} AND seq = {event['parent'] or -1}"
        ).fetchall()
        key = rows[0][0] if rows else None
    elif event["name"] not in (probe.FETCH, probe.INPUT_WAIT, probe.PREFETCH):
        return []
    if key is None:
        return links
    owner = owners(run.rows).get(event["process"], event["process"])
    loader, round, number = probe.read_batch_key(key)
    batches = run.sql(
        f"SELECT rank, step, start_ns - {started}, wait_ns FROM batches WHERE process = {quoted(owner)} AND loader = {loader} "
        f"AND round = {round} AND batch = {number} LIMIT 1"
    ).fetchall()
    for rank, step, start, wait in batches:
        place = {"rank": rank, "process": owner, "loader": loader, "round": round, "batch": number, "step": step}
        links.append({"kind": "batch", **place, "start_ns": start, "dur_ns": wait})
        steps = run.sql(
            f"SELECT start_ns - {started}, dur_ns FROM steps WHERE process = {quoted(owner)} AND step = {-1 if step is None else step} LIMIT 1"
        ).fetchall()
        links += [{"kind": "step", **place, "start_ns": begun, "dur_ns": dur} for begun, dur in steps]
    return links
