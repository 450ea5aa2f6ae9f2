"""What `sonde show RUN TABLE` tells: the first rows of a table as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.analysis.run import Run

# Columns that say the most, in the order in which a narrow terminal keeps them.
TELLING = ("name", "cat", "dur_ns", "start_ns", "state", "pid", "value", "key", "step", "kind", "thread", "args")


@dataclass(frozen=True)
class Listing:
    """The first rows of a table, and how many it has."""

    table: str
    columns: list[str]
    rows: list[list[object]]
    total: int


def listing(run: Run, table: str, limit: int) -> Listing:
    """The first `limit` rows (0: all) in the order of time. Raises UnknownName if there is no such table."""
    found = run.table(table)
    ((total,),) = found.aggregate("count(*)").fetchall()
    ordered = found.order("start_ns, process, seq" if "seq" in found.columns else "start_ns, process")
    rows = (ordered.limit(limit) if limit > 0 else ordered).fetchall()
    return Listing(table, list(found.columns), [list(row) for row in rows], total)
