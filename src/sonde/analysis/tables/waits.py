"""The table `waits`: in each step that all ranks made, which of them was the slowest, and how long the others waited for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema

if TYPE_CHECKING:
    import duckdb

# What a rank does itself in a step: all but waiting for the others, and for what all of them do at a time of their own.
OWN_NS = "(dur_ns - coalesce(communication_ns, 0) - coalesce(evaluation_ns, 0) - coalesce(checkpoint_ns, 0))"
_FIRST_OF_SLOWEST = f"{OWN_NS}::HUGEINT * 1048576 - rank"  # of ranks that take equally long, the first
_OF_ALL = "(SELECT p.attempt, s.* FROM steps s JOIN processes p USING (process) WHERE s.rank IS NOT NULL)"


def slowest(source: str, key: str, ranks: str) -> str:
    """The slowest rank in each step, as a query. `source`: steps; `key`: what distinguishes steps; `ranks`: that a step must have."""
    return f"""
        SELECT {key}, count(DISTINCT rank) AS ranks, arg_max(process, {_FIRST_OF_SLOWEST}) AS process, max({OWN_NS}) AS own_ns,
            (max({OWN_NS}) - list_median(list_sort(list({OWN_NS}))[:-2]))::BIGINT AS waited_ns
        FROM {source} WHERE dur_ns IS NOT NULL GROUP BY {key} HAVING count(DISTINCT rank) = ({ranks}) AND ranks > 1
    """


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table. Needs `steps`."""
    columns = ", ".join(f'{_MADE.get(name, f"w.{name}")} AS "{name}"' for name, _ in schema.WAITS)
    world = f"SELECT count(DISTINCT rank) FROM {_OF_ALL}"
    connection.execute(
        f"CREATE OR REPLACE VIEW waits AS SELECT {columns} "
        f"FROM ({slowest(_OF_ALL, 'attempt, step', world)}) w JOIN processes p USING (process)"
    )


_MADE = {"host": "p.host", "rank": "p.rank", "attempt": "w.attempt", "process": "process"}
