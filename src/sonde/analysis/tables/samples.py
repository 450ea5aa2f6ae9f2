"""The table `samples`: where the threads of a program were, as `--sample` saw them, and which phase that time belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.records import schema
from sonde.analysis.training.trainers import codes_of
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from sonde.analysis.records.names import NameCount

_MADE = {
    **{name: f"p.{name}" for name in ("host", "rank", "pid", "worker", "process")},
    "thread": "coalesce(t.name, 'thread ' || s.number)",
    "time_ns": "s.start_ns",
    "dur_ns": "s.dur_ns",
    "step": "s.step",
    "phase": "s.phase",
    **{name: f"k.{name}" for name in ("function", "file", "line", "leaf", "stack")},
}
_EVALUATION, _WAIT = "evaluation", "input_wait"
_OWN = f"cat = '{probe.SAMPLE}'"
# A line of a stack; nothing in it separates the lines.
_LINE = "replace(function || ' (' || regexp_extract(file, '[^/]*$') || ':' || line || ')', ';', ',')"
# What was recorded: the lines of all stacks, the threads, and each sample.
_RECORDED = f"""
WITH RECURSIVE frames AS (
    SELECT DISTINCT ON (process, key) process, key AS node, (args->>'$.caller')::BIGINT AS caller, args->>'$.function' AS function,
           args->>'$.file' AS file, (args->>'$.line')::BIGINT AS line, (args->>'$.own')::BOOLEAN AS own
    FROM {schema.BESIDE} WHERE {_OWN} AND kind = 'mark' AND name = '{probe.SAMPLE_FRAME}'
), stacks AS (
    SELECT process, node, function, file, line, own, {_LINE} AS leaf, {_LINE} AS stack FROM frames WHERE caller = 0
    UNION ALL
    SELECT f.process, f.node,
           CASE WHEN f.own OR NOT s.own THEN f.function ELSE s.function END,
           CASE WHEN f.own OR NOT s.own THEN f.file ELSE s.file END,
           CASE WHEN f.own OR NOT s.own THEN f.line ELSE s.line END,
           f.own OR s.own, f.leaf, s.stack || ';' || f.leaf
    FROM (SELECT *, {_LINE} AS leaf FROM frames) f JOIN stacks s ON s.process = f.process AND s.node = f.caller AND f.caller < f.node
), threads AS (
    SELECT DISTINCT ON (process, key) process, key AS number, (args->>'$.tid')::BIGINT AS tid, args->>'$.name' AS name
    FROM {schema.BESIDE} WHERE {_OWN} AND kind = 'mark' AND name = '{probe.SAMPLE_THREAD}'
), seen AS (
    SELECT process, step, start_ns, value::BIGINT AS dur_ns, key >> {probe.SAMPLE_THREAD_BITS} AS number,
           key & {(1 << probe.SAMPLE_THREAD_BITS) - 1} AS node
    FROM {schema.BESIDE} WHERE {_OWN} AND kind = 'counter' AND name = '{probe.SAMPLE_STACK}'
)"""


def sampled(named: Mapping[str, Sequence[NameCount]]) -> list[str]:
    """The processes whose stacks were sampled."""
    return [process for process, names in named.items() if any(one.cat == probe.SAMPLE for one in names)]


def create(connection: duckdb.DuckDBPyConnection, named: Mapping[str, Sequence[NameCount]]) -> None:
    """Make the table, of `events` and `phases`. `named`: the names of all processes."""
    processes = sampled(named)
    columns = ", ".join(f'{_MADE.get(name, f"s.{name}")} AS "{name}"' for name, _ in schema.SAMPLES)
    if not processes:
        empty = ", ".join(f'NULL::{type} AS "{name}"' for name, type in schema.SAMPLES)
        connection.execute(f"CREATE OR REPLACE VIEW samples AS SELECT {empty} WHERE false")
        return
    connection.execute(
        f"""
        CREATE OR REPLACE TABLE samples AS
        {_RECORDED}, {_placed(processes, named)}, all_of_them AS (
            SELECT * FROM placed UNION ALL
            SELECT s.process, s.number, s.node, s.step, s.start_ns, s.dur_ns, NULL FROM seen s LEFT JOIN threads t USING (process, number)
            WHERE NOT coalesce((s.process, t.tid) IN (SELECT (process, tid) FROM training), false)
        )
        SELECT {columns} FROM all_of_them s JOIN process_numbers p ON p.process = s.process
        LEFT JOIN threads t ON t.process = s.process AND t.number = s.number LEFT JOIN stacks k ON k.process = s.process AND k.node = s.node ORDER BY s.start_ns
        """
    )


def _placed(processes: Sequence[str], named: Mapping[str, Sequence[NameCount]]) -> str:
    """Which phase each sample of a training thread lies in, as SQL: the innermost span that is a phase, else the outermost one."""
    here = f"process IN ({', '.join(map(schema.quoted, processes))})"
    codes = [(process, *name, code) for process in processes for name, code in _phases(named[process])]
    listed = ", ".join(f"({', '.join(schema.quoted(word) for word in one)})" for one in codes)
    return f"""
        training AS (
            SELECT DISTINCT process, tid FROM events
            WHERE cat = '{probe.PROBE}' AND name = '{probe.UPDATE}' AND kind = 'mark' AND {here}
        ), spans AS (
            SELECT e.process, e.start_ns, e.start_ns + e.dur_ns AS end_ns, c.phase,
                   max(e.start_ns + e.dur_ns) OVER (PARTITION BY e.process ORDER BY e.start_ns, e.dur_ns DESC
                                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
            FROM events e JOIN training t ON t.process = e.process AND t.tid = e.tid
            JOIN (VALUES {listed or "(NULL, NULL, NULL, NULL)"}) c(process, cat, name, phase)
              ON c.process = e.process AND c.cat = e.cat AND c.name = e.name
            WHERE e.kind = 'span' AND e.dur_ns IS NOT NULL
        ), outermost AS (
            SELECT * FROM spans WHERE reach IS NULL OR start_ns >= reach
        ), laid AS (
            SELECT s.*, n.phase AS inner_phase, n.end_ns AS inner_end, o.phase AS outer_phase, o.end_ns AS outer_end
            FROM (SELECT s.*, t.name, t.tid FROM seen s LEFT JOIN threads t USING (process, number)
                  WHERE (s.process, t.tid) IN (SELECT (process, tid) FROM training)) s
            ASOF LEFT JOIN spans n ON n.process = s.process AND s.start_ns >= n.start_ns
            ASOF LEFT JOIN outermost o ON o.process = s.process AND s.start_ns >= o.start_ns
        ), placed AS (
            SELECT l.process, l.number, l.node, l.step, l.start_ns, l.dur_ns,
                   CASE WHEN l.start_ns >= v.start_ns AND l.start_ns < v.start_ns + v.dur_ns THEN '{_EVALUATION}'
                        WHEN l.start_ns < l.inner_end THEN l.inner_phase WHEN l.start_ns < l.outer_end THEN l.outer_phase
                        WHEN w.step IS NOT NULL AND l.start_ns < f.start_ns THEN '{_WAIT}'
                        ELSE '{schema.RESIDUAL}' END AS phase
            FROM laid l
            LEFT JOIN phases v ON v.process = l.process AND v.step = l.step AND v.phase = '{_EVALUATION}'
            LEFT JOIN phases w ON w.process = l.process AND w.step = l.step AND w.phase = '{_WAIT}' AND w.calls IS NULL
            LEFT JOIN phases f ON f.process = l.process AND f.step = l.step AND f.phase = 'forward'
        )"""


def _phases(named: Sequence[Any]) -> list[tuple[tuple[str, str], str]]:
    """For each name of spans that is a phase in this process, the phase."""
    known = (*schema.PHASES, _WAIT)  # the last one: a loader starts or ends
    return [(name, known[code]) for name, code in codes_of(named).items() if code < len(known)]
