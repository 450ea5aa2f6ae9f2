"""The pyramid of a part: its spans in ever wider bins of time, so that a timeline that shows a whole run reads few rows.

- A lane (a thread of a process) with few spans has them all, one by one, with level -1.
- Of others, a row of level k stands for the spans of one depth that begin in the same 2^k ns and are shorter than that.
- Longer ones have a row of their own, `wide`, whose level is the largest k with 2^k ns not above their duration.

So at level k a lane is the rows of that level that are not wide, and all wide ones from that level on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

FEW = 2048  # spans of a lane that are kept one by one
EACH = 16  # spans in a bin of the lowest level, on average
HIGHEST = 52  # the highest level: 52 days
ALL = -1
TABLE = "pyramid"
COLUMNS = (
    "process", "lane", "depth", "level", "wide", "start_ns", "end_ns", "count", "busy_ns", "longest_ns", "cat", "name", "seq",
)  # fmt: skip


class LaneSpans(NamedTuple):
    """A lane with spans: how many, and the lowest level of its bins; ALL: they are kept one by one."""

    process: str
    lane: int | None
    thread: str | None
    spans: int
    lowest: int


def build_pyramid(connection: duckdb.DuckDBPyConnection, raw: Sequence[str]) -> tuple[list[LaneSpans], str]:
    """The lanes of a part, and the query for its pyramid. `raw`: the queries that select its rows, as numbers."""
    done = f"kind & {record.KIND_MASK | record.OPEN} = {record.SPAN}"
    span = f"kind & {record.KIND_MASK} = {record.SPAN}"
    rows = " UNION ALL ".join(raw) or "SELECT 0 AS lane, 0 AS kind WHERE false"
    connection.execute(
        f"""
        CREATE TEMP TABLE pyramid_spans AS
        SELECT lane AS id, depth, name, start_ns, CASE WHEN {done} THEN dur_ns END AS dur_ns, seq FROM ({rows}) WHERE {span}
        """
    )
    lanes = connection.execute(
        """
        SELECT id, process, ordinal, thread, count, length FROM (
            SELECT id, count(*) AS count, max(start_ns + coalesce(dur_ns, 0)) - min(start_ns) AS length FROM pyramid_spans GROUP BY id
        ) JOIN lanes USING (id) ORDER BY process, ordinal
        """
    ).fetchall()
    lowest = {id: _lowest(count, length) for id, _, _, _, count, length in lanes}
    _fill(connection, lowest)
    found = [LaneSpans(process, lane, thread, count, lowest[id]) for id, process, lane, thread, count, _ in lanes]
    return found, _QUERY


def _lowest(spans: int, length: int) -> int:
    """The lowest level of a lane: so that its bins have some spans each."""
    if spans <= FEW:
        return ALL
    return min((EACH * max(length, 1) // spans).bit_length(), HIGHEST)


def _fill(connection: duckdb.DuckDBPyConnection, lowest: dict[int, int]) -> None:
    """Make the rows: those one by one first, then level upon level, each of the one below it."""
    pairs = ", ".join(f"({id}, {level})" for id, level in lowest.items()) or "(NULL, NULL)"
    connection.execute(
        f"""
        CREATE TEMP TABLE pyramid_rows AS
        SELECT id, depth, {ALL}::TINYINT AS level, false AS wide, start_ns, start_ns + dur_ns AS end_ns, 1::BIGINT AS count,
               dur_ns::BIGINT AS busy_ns, dur_ns AS longest_ns, name, seq
        FROM pyramid_spans JOIN (VALUES {pairs}) l(id, lowest) USING (id) WHERE lowest = {ALL} OR dur_ns IS NULL
        """
    )
    connection.execute(
        f"""
        CREATE TEMP TABLE pyramid_wide AS
        SELECT s.*, lowest FROM pyramid_spans s JOIN (VALUES {pairs}) l(id, lowest) USING (id)
        WHERE lowest <> {ALL} AND dur_ns >= 1::BIGINT << lowest
        """
    )
    for level in range(min((one for one in lowest.values() if one != ALL), default=HIGHEST + 1), HIGHEST + 1):
        own = ", ".join(str(id) for id, one in lowest.items() if one == level)
        _add_level(connection, level, own)


_ONE = (
    "id, depth, start_ns, start_ns + dur_ns AS end_ns, 1 AS count, dur_ns AS busy_ns, dur_ns AS longest_ns, name, seq"
)


def _add_level(connection: duckdb.DuckDBPyConnection, level: int, own: str) -> None:
    """One level: the bins of the one below it, spans that are short enough now, and lanes (`own`) that begin with it."""
    width, half = 1 << level, (1 << level) >> 1
    below = [
        f"SELECT id, depth, start_ns, end_ns, count, busy_ns, longest_ns, name, seq FROM pyramid_rows WHERE level = {level - 1} AND NOT wide",
        f"SELECT {_ONE} FROM pyramid_wide WHERE lowest < {level} AND dur_ns >= {half} AND dur_ns < {width}",
    ]
    if own:
        below.append(f"SELECT {_ONE} FROM pyramid_spans WHERE id IN ({own}) AND dur_ns < {width}")
    connection.execute(
        f"""
        INSERT INTO pyramid_rows
        SELECT id, depth, {level}, false, min(start_ns), max(end_ns), sum(count), sum(busy_ns), max(longest_ns),
               arg_max(name, longest_ns), CASE WHEN sum(count) = 1 THEN min(seq) END
        FROM ({" UNION ALL ".join(below)}) GROUP BY id, depth, start_ns >> {level}
        UNION ALL
        SELECT id, depth, {level}, true, start_ns, start_ns + dur_ns, 1, dur_ns, dur_ns, name, seq
        FROM pyramid_wide WHERE lowest <= {level} AND dur_ns >= {width} AND (dur_ns < {2 * width} OR {level} = {HIGHEST})
        """
    )


_QUERY = """
    SELECT lanes.process, lanes.ordinal AS lane, r.depth, level, wide, start_ns, end_ns, count, busy_ns, longest_ns, names.cat, names.name, seq
    FROM pyramid_rows r JOIN lanes ON lanes.id = r.id JOIN names ON names.id = r.name
    ORDER BY level, wide, lanes.process, lanes.ordinal, start_ns
"""
