"""The table `hosts`: the clock of each host compared with that of the host of rank 0, and whether it was set during the run.

Collectives show it. Of a step with one collective, its row has the moments; of one with several, the events have them. An all-reduce of
DistributedDataParallel has no record of its own: it begins when its logger says, and ends with the backward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.clocks import ClockJump, ClockStretch, apart, jumps_of, stretches
from sonde.analysis.records import schema
from sonde.analysis.records.schema import quoted
from sonde.analysis.tables.steps import ROWS
from sonde.lazy import numpy as np
from sonde.store import probe
from sonde.store.alive import LAUNCHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

    from sonde.analysis.records.names import NameCount
    from sonde.store.process import Info

    Row = dict[str, Any]

REFERENCE, COLLECTIVES, WALL = "reference", "collectives", "wall clock"
MEETINGS = "meetings"  # all collectives that are at hand, as events
MOST = 512  # collectives of a run that are looked at
ENOUGH = 4  # so few of them say nothing
SHARP_NS = 1_000_000  # bounds that are wider are made narrower by when the ranks left
USUAL = 0.95  # of the collectives; in the others a rank may have lost its core
ANYTHING = 10**15  # ns: so wide a bound says nothing
RANKS = 4  # of a host in an attempt that are looked at
# Whoever is in one of these waits for all others. In the others some ranks only send.
_MEETS = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced",
    "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "reduce_scatter", "reduce_scatter_tensor",
)  # fmt: skip
_MEETING = tuple(probe.COMMUNICATION + name for name in _MEETS)
_ROLES = ("worker", LAUNCHER)


class _Met(NamedTuple):
    """One host in one collective: the last of its ranks came at `enter`, the first one left at `leave`, on its own clock.

    `stay`: how long that of its ranks was in it which was in it for the shortest time.
    """

    host: str
    meeting: tuple[Any, ...]
    enter: int
    leave: int
    stay: int
    shared: bool  # an all-reduce of DistributedDataParallel


def create(
    connection: duckdb.DuckDBPyConnection,
    rows: Sequence[Row],
    infos: Iterable[Info],
    names: Mapping[str, Sequence[NameCount]],
) -> None:
    """Make the table. Needs `steps`, and all collectives in `meetings`. `infos`: what each process said of its clocks."""
    hosts = _hosts(rows)
    met = _met(connection, rows, names) if len(hosts) > 1 else []
    device = _device_step(connection, names) if met else 0.0
    jumps = jumps_of(infos)
    found: list[tuple[object, ...]] = []
    reference = next(iter(hosts), None)
    for host, some in hosts.items():
        about = (host, len(some), len({row["rank"] for row in some if row["rank"] is not None}), *_ends(some))
        course = [] if host == reference else _course(met, host, str(reference), device)
        found += _lines(about, host == reference, course, _on_wall(jumps.get(host, {}), some))
    _fill(connection, found)


def _hosts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The processes of each host, that of the lowest rank first."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["attempt"] or 0, _rank(row), str(row["process"]))):
        found.setdefault(str(row["host"]), []).append(row)
    return found


def _rank(row: Row) -> float:
    return float("inf") if row["rank"] is None or row["role"] in _ROLES else row["rank"]


def _ends(some: Sequence[Row]) -> tuple[int | None, int | None]:
    starts = [row["start_ns"] for row in some if row["start_ns"] is not None]
    ends = [one for row in some for one in (row["end_ns"], row["last_ns"]) if one is not None]
    return min(starts, default=None), max(ends, default=None)


# ── collectives ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _met(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[Row], names: Mapping[str, Sequence[NameCount]]
) -> list[_Met]:
    """Collectives in which several hosts were: of the steps, or of the events where that is too few."""
    chosen = _chosen(rows)
    if not chosen:
        return []
    listed = ", ".join(f"({quoted(process)}, {quoted(host)}, {attempt})" for process, host, attempt in chosen)
    kinds = {one.name for process, *_ in chosen for one in names.get(process, ()) if one.cat == probe.PROBE}
    called = {name for name in kinds if name.startswith(probe.COMMUNICATION)}
    found: list[_Met] = []
    if called <= {*_MEETING} or called & {*_MEETING}:
        alone = "true" if called <= {*_MEETING} else "false"
        found = _asked(connection, _OF_STEPS.format(chosen=listed, alone=alone, rows=ROWS, most=MOST))
    if _shared(found) < ENOUGH and called and called <= {*_MEETING}:
        wanted = ", ".join(map(quoted, _MEETING))
        found = _asked(connection, _OF_EVENTS.format(chosen=listed, names=wanted, meetings=MEETINGS, most=MOST))
    return found


def _asked(connection: duckdb.DuckDBPyConnection, query: str) -> list[_Met]:
    rows = connection.execute(query).fetchall()
    return [_Met(host, tuple(meeting), *moments) for host, *meeting, moments in rows]


def _shared(found: Sequence[_Met]) -> int:
    """In how many collectives more than one host was."""
    hosts: dict[tuple[Any, ...], set[str]] = {}
    for one in found:
        hosts.setdefault(one.meeting, set()).add(one.host)
    return sum(len(some) > 1 for some in hosts.values())


def _chosen(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    """Some ranks of each host and attempt, spread over them."""
    groups: dict[tuple[str, int], list[str]] = {}
    for row in sorted(rows, key=lambda row: (_rank(row), str(row["process"]))):
        if row["rank"] is not None and row["role"] not in _ROLES:
            groups.setdefault((str(row["host"]), row["attempt"] or 0), []).append(str(row["process"]))
    return [(one, host, attempt) for (host, attempt), some in groups.items() for one in some[:: -(-len(some) // RANKS)]]


# A later end and an earlier beginning than the true ones are bounds as well, only wider ones.
_OF_STEPS = """
    WITH chosen(process, host, attempt) AS (VALUES {chosen}),
    steps AS NOT MATERIALIZED (
        SELECT c.host, c.attempt, s.* FROM (SELECT * EXCLUDE (host) FROM {rows} WHERE whole) s JOIN chosen c USING (process)
    ),
    every AS (SELECT greatest(1, (max(step) - min(step)) // {most}) AS every FROM steps),
    bounds AS (
        SELECT host, attempt, step, communication_after IS NULL AS shared,
            start_ns + CASE WHEN communication_after IS NOT NULL THEN communication_after
                WHEN backward_calls = 1 THEN backward_after + backward_ns ELSE backward_after END AS enter,
            CASE WHEN communication_after IS NOT NULL AND communication_calls = 1 AND {alone}
                    THEN start_ns + communication_after + communication_ns
                WHEN communication_after IS NULL AND backward_calls = 1
                    THEN start_ns + backward_after + backward_ns + communication_ns
                WHEN communication_after IS NOT NULL AND NOT {alone} THEN start_ns + dur_ns END AS leave
        FROM steps, every WHERE step % every = 0 AND communication_ns IS NOT NULL
    )
    SELECT host, attempt, step, (max(enter), min(leave), min(leave - enter), bool_or(shared))
    FROM bounds WHERE enter IS NOT NULL AND leave IS NOT NULL GROUP BY ALL
"""
# Collectives of one name in one step are distinguished by their order; where a rank has more or fewer of them, by nothing.
_OF_EVENTS = """
    WITH chosen(process, host, attempt) AS (VALUES {chosen}),
    met AS (
        SELECT c.process, c.host, c.attempt, coalesce(e.step, -1) AS step, e.name, e.start_ns AS enter, e.start_ns + e.dur_ns AS leave,
            row_number() OVER (PARTITION BY process, e.step, e.name ORDER BY e.start_ns) AS place,
            count(*) OVER (PARTITION BY process, e.step, e.name) AS times
        FROM {meetings} e JOIN chosen c USING (process)
        WHERE e.kind = 'span' AND e.cat = 'probe' AND e.name IN ({names}) AND e.dur_ns IS NOT NULL AND NOT e.error
    ),
    wanted AS (SELECT attempt, count(*) AS processes FROM chosen GROUP BY attempt),
    alike AS (
        SELECT m.attempt, m.step, m.name FROM met m JOIN wanted w USING (attempt) GROUP BY ALL
        HAVING min(m.times) = max(m.times) AND count(DISTINCT m.process) = any_value(w.processes)
    ),
    numbered AS (
        SELECT *, dense_rank() OVER (ORDER BY attempt, step, name, place) AS number FROM met SEMI JOIN alike USING (attempt, step, name)
    )
    SELECT host, attempt, step, name, place, (max(enter), min(leave), min(leave - enter), false) FROM numbered
    WHERE number % greatest(1, (SELECT max(number) FROM numbered) // {most}) = 0 GROUP BY ALL
"""


def _device_step(connection: duckdb.DuckDBPyConnection, names: Mapping[str, Sequence[NameCount]]) -> float:
    """Where a device computes, a rank goes on while its collectives wait; but not further than a step or so."""
    if not any(one.name.startswith(probe.DEVICE) for some in names.values() for one in some if one.cat == probe.PROBE):
        return 0.0
    ((step,),) = connection.execute(f"SELECT coalesce(median(dur_ns), 0) FROM {ROWS} WHERE whole").fetchall()
    return float(step)


def _course(met: Sequence[_Met], host: str, reference: str, slack: float) -> list[ClockStretch]:
    """How the clock of a host ran beside that of the reference."""
    there = {one.meeting: one for one in met if one.host == reference}
    pairs = [(one, there[one.meeting]) for one in met if one.host == host and one.meeting in there]
    if len(pairs) < ENOUGH:
        return []
    times = np.array([other.leave for _, other in pairs], np.int64)
    low = np.array([one.enter - other.leave for one, other in pairs], np.int64)
    high = np.array([one.leave - other.enter for one, other in pairs], np.int64)
    left = np.array([one.leave - other.leave for one, other in pairs], np.int64)
    away = apart(times, left)
    scatter = float(np.quantile(away, USUAL))
    usual = away <= scatter
    if any(one.shared or other.shared for one, other in pairs):
        # What comes after the all-reduce is in the backward pass too: without a core, it takes long.
        slack += scatter
        low, high = np.where(usual, low, low - ANYTHING), np.where(usual, high, high + ANYTHING)
    course = stretches(times, low, high, slack)
    if max((one.error_ns for one in course), default=0) <= SHARP_NS:
        return course
    # Neither host has a rank that comes last. But nobody leaves much later than the last one, for whom all is ready.
    shortest = _shortest(met)
    room = np.array([shortest[one.meeting] for one, _ in pairs], np.int64) + int(scatter)
    low, high = np.where(usual, np.maximum(low, left - room), low), np.where(usual, np.minimum(high, left + room), high)
    return stretches(times, low, high, slack)


def _shortest(met: Sequence[_Met]) -> dict[tuple[Any, ...], int]:
    """For each collective how long it took the last one to come."""
    found: dict[tuple[Any, ...], int] = {}
    for one in met:
        found[one.meeting] = min(one.stay, found.get(one.meeting, one.stay))
    return found


# ── the wall clock ───────────────────────────────────────────────────────────────────────────────────────────────────


def _on_wall(jumps: Mapping[str | None, list[ClockJump] | None], some: Sequence[Row]) -> list[ClockJump] | None:
    """The jumps with their moments as the tables have them; None: not known."""
    known = [found for found in jumps.values() if found is not None]
    if not known:
        return None
    offsets = {row["boot_id"]: row["offset_ns"] for row in some}
    return [
        ClockJump(one.ns, one.after + offsets.get(boot, 0), one.before + offsets.get(boot, 0))
        for boot, found in jumps.items()
        for one in found or ()
    ]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(
    about: tuple[Any, ...], reference: bool, course: Sequence[ClockStretch], jumps: Sequence[ClockJump] | None
) -> list[tuple[object, ...]]:
    """The rows of a host: one, or one for each stretch in which its clock ran evenly."""
    *who, first, last = about
    jumped: list[object] = [None] * 4
    if jumps is not None:
        jumped = [len(jumps), *(max(jumps, key=lambda one: abs(one.ns)) if jumps else [None] * 3)]
    if reference or not course:
        clock = (0, 0.0, 0, None, REFERENCE) if reference else (None, None, None, None, WALL)
        return [(*who, first, last, first, *clock, *jumped)]
    begins = [first, *(one.from_ns for one in course[1:])]
    ends = [*begins[1:], last]
    return [
        (
            *who,
            begin,
            end,
            one.at_ns,
            one.offset_ns,
            one.drift * 1e6,
            one.error_ns,
            one.collectives,
            COLLECTIVES,
            *jumped,
        )
        for one, begin, end in zip(course, begins, ends, strict=True)
    ]


def _fill(connection: duckdb.DuckDBPyConnection, found: Sequence[tuple[object, ...]]) -> None:
    columns = ", ".join(f'"{name}" {type}' for name, type in schema.HOSTS)
    connection.execute(f"CREATE OR REPLACE TABLE hosts ({columns})")
    if found:
        connection.executemany(f"INSERT INTO hosts VALUES ({', '.join('?' * len(schema.HOSTS))})", found)
