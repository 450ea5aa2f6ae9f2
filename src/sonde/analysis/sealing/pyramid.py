"""The pyramid of a part: its spans in ever wider bins of time, so that a timeline of a whole run reads few rows.

- A row of level k that is not `single` combines the spans of one depth of a lane (a thread of a process) that begin in the same
  2^k ns and are shorter than that.
- Longer ones have a `single` row each, whose level is the largest k with 2^k ns not above their duration.
- So do open spans, and all spans of lanes that have few; their level is ALWAYS.

So at level k a lane is its rows of that level, and all single ones from that level on. A lane has levels from the one whose
bins have some spans each to the one where everything is one bin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.parts.summary import LaneSpans
from sonde.analysis.records.steponly import FAR
from sonde.store import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

FEW = 2048  # spans of a lane that are kept one by one
EACH = 8  # spans in a bin of the lowest level, at least, on average
ALWAYS = 63
HIGHEST = 52  # 52 days
# Without those whose times are damaged.
_SPAN = f"kind & {record.KIND_MASK} = {record.SPAN} AND start_ns BETWEEN 0 AND {FAR} AND (dur_ns IS NULL OR dur_ns BETWEEN 0 AND {FAR - 1})"
_BIN = (
    "min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(count)::BIGINT AS count, sum(busy_ns)::BIGINT AS busy_ns, "
    "max(longest_ns) AS longest_ns, arg_max(name, longest_ns) AS name, CASE WHEN sum(count) = 1 THEN min(seq) END AS seq"
)
_ONE = "start_ns, start_ns + dur_ns AS end_ns, 1 AS count, dur_ns AS busy_ns, dur_ns AS longest_ns, name, seq"


def build_pyramid(connection: duckdb.DuckDBPyConnection, raw: Sequence[str]) -> tuple[list[LaneSpans], str]:
    """The lanes of a part, and the query for its pyramid. `raw`: the queries that select its rows, as numbers."""
    rows = " UNION ALL ".join(raw)
    if not rows:
        return [], ""
    connection.execute(f"CREATE TEMP VIEW spans AS SELECT * FROM ({rows}) WHERE {_SPAN}")
    found = {id: lane for id, *lane in connection.execute(_LANES).fetchall()}
    lanes = {id: _lane(*lane) for id, lane in found.items()}
    _start(connection, {id: lane for id, lane in lanes.items() if lane.lowest is not None})
    lowest = [lane.lowest for lane in lanes.values() if lane.lowest is not None]
    for level in range(min(lowest, default=0) + 1, max((lane.highest for lane in lanes.values()), default=0) + 1):
        _add_level(connection, level)
    return sorted(lanes.values(), key=lambda one: (one.process, one.lane or 0)), _QUERY


_LANES = """
    SELECT id, process, ordinal, thread, spans, depth, length FROM (
        SELECT lane AS id, count(*) AS spans, max(depth) AS depth, max(start_ns + coalesce(dur_ns, 0)) - min(start_ns) AS length
        FROM spans GROUP BY lane
    ) JOIN lanes USING (id)
"""


def _lane(process: str, lane: int | None, thread: str | None, spans: int, depth: int, length: int) -> LaneSpans:
    if spans <= FEW:
        return LaneSpans(process, lane, thread, spans, depth, None, 0)
    lowest = min((EACH * max(length, 1) // spans).bit_length(), HIGHEST)
    return LaneSpans(process, lane, thread, spans, depth, lowest, max(lowest, min(length.bit_length(), HIGHEST)))


def _start(connection: duckdb.DuckDBPyConnection, lanes: dict[int, LaneSpans]) -> None:
    """Make the lowest bins of these lanes, and the rows of single spans."""
    levels = ", ".join(f"({id}, {lane.lowest}, {lane.highest})" for id, lane in lanes.items())
    connection.execute("CREATE TEMP TABLE levels (id UINTEGER, lowest INTEGER, highest INTEGER)")
    if levels:
        connection.execute(f"INSERT INTO levels VALUES {levels}")
    connection.execute(
        f"""
        CREATE TEMP TABLE singles AS
        SELECT lane AS id, depth, CASE WHEN dur_ns IS NULL OR lowest IS NULL THEN {ALWAYS} ELSE length(bin(dur_ns)) - 1 END AS level, {_ONE}
        FROM spans LEFT JOIN levels ON id = lane WHERE dur_ns IS NULL OR lowest IS NULL OR dur_ns >= 1::BIGINT << lowest
        """
    )
    connection.execute(
        f"""
        CREATE TEMP TABLE bins AS
        SELECT id, depth, any_value(lowest) AS level, {_BIN}
        FROM (SELECT lane, depth, {_ONE} FROM spans) s JOIN levels ON id = lane
        WHERE busy_ns < 1::BIGINT << lowest GROUP BY id, depth, start_ns >> lowest
        """
    )


def _add_level(connection: duckdb.DuckDBPyConnection, level: int) -> None:
    """One more level: the bins of the one below it, and single spans that are short enough now."""
    connection.execute(
        f"""
        INSERT INTO bins SELECT id, depth, {level}, {_BIN} FROM (
            SELECT id, depth, start_ns, end_ns, count, busy_ns, longest_ns, name, seq FROM bins JOIN levels USING (id)
            WHERE level = {level - 1} AND highest >= {level}
            UNION ALL
            SELECT id, depth, start_ns, end_ns, count, busy_ns, longest_ns, name, seq FROM singles JOIN levels USING (id)
            WHERE level = {level - 1} AND lowest < {level} AND highest >= {level}
        ) GROUP BY id, depth, start_ns >> {level}
        """
    )


_QUERY = """
    SELECT lanes.process, lanes.ordinal AS lane, depth, single, level::TINYINT AS level, start_ns, end_ns, count, busy_ns, longest_ns,
           names.cat, names.name, seq
    FROM (SELECT *, false AS single FROM bins UNION ALL SELECT *, true FROM singles) rows
    JOIN lanes ON lanes.id = rows.id JOIN names ON names.id = rows.name
    ORDER BY single, level, lanes.process, lanes.ordinal, start_ns, depth, seq
"""
