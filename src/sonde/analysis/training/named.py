"""The program's own innermost spans outside all phases of a step: they name untracked time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records.schema import quoted
from sonde.analysis.training.intervals import NAMED
from sonde.analysis.training.trainers import phase_of
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb

    from sonde.analysis.records.names import NameCount

NamedTime = tuple[str, str, int]  # category, name, ns


def named_time(
    connection: duckdb.DuckDBPyConnection,
    events: str,
    processes: Sequence[str],
    names: Iterable[NameCount],
    before: int | None = None,
) -> dict[str, list[NamedTime]]:
    """For each process the time in such spans, the largest first. `names`: all that these processes have; `before`: only spans that
    began before this moment.
    """
    own = {
        (one.cat, one.name)
        for one in names
        if one.kind == "span" and (phase_of(one.cat, one.name) or (None,))[0] == NAMED
    }
    if not own or not processes:
        return {}
    listed = ", ".join(f"({quoted(cat)}, {quoted(name)})" for cat, name in sorted(own))
    rows = connection.execute(
        f"""
        WITH here AS (SELECT * FROM {events} WHERE process IN ({", ".join(map(quoted, processes))}))
        SELECT e.process, e.cat, e.name, sum(e.dur_ns)::BIGINT FROM here e
        LEFT JOIN here p ON p.process = e.process AND p.seq = e.parent
        WHERE e.kind = 'span' AND e.dur_ns IS NOT NULL AND (e.cat, e.name) IN ({listed})
          {"" if before is None else f"AND e.start_ns < {before}"}
          AND (e.parent IS NULL OR p.cat <> '{probe.PROBE}')
          AND NOT EXISTS (SELECT 1 FROM here c WHERE c.process = e.process AND c.parent = e.seq)
        GROUP BY ALL ORDER BY 1, 4 DESC, 3
        """
    ).fetchall()
    found: dict[str, list[NamedTime]] = {}
    for process, cat, name, total in rows:
        found.setdefault(process, []).append((cat, name, total))
    return found
