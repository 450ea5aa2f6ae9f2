"""`/schema` and `/sql`: the tables of a run, and one SELECT over them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sonde.analysis.records.schema import COLUMNS
from sonde.web.asking import Ask, BadRequest

if TYPE_CHECKING:
    from sonde.analysis.run import Run

EXAMPLES = (
    ("Slowest steps", "SELECT rank, step, dur_ns, loss FROM steps ORDER BY dur_ns DESC LIMIT 20"),
    (
        "Slowest items",
        'SELECT "index", id, count(*) AS loads, median(dur_ns) AS ns FROM items GROUP BY ALL ORDER BY ns DESC LIMIT 20',
    ),
    ("Where the time goes", "SELECT phase, sum(dur_ns) AS ns FROM phases GROUP BY phase ORDER BY ns DESC"),
)


def schema(run: Run, ask: Ask) -> object:
    """Tables and columns, and queries to begin with."""
    tables = [
        {"name": table, "columns": [{"name": name, "type": type} for name, type in columns]}
        for table, columns in COLUMNS.items()
    ]
    return {"tables": tables, "examples": [{"title": title, "sql": text} for title, text in EXAMPLES]}


def sql(run: Run, ask: Ask) -> object:
    """The answer to one SELECT."""
    query = ask.query.get("q", "").strip().rstrip(";")
    if not query:
        raise BadRequest("Give a query: ?q=SELECT ...")
    limit = ask.integer("limit", 1000, 1, 100_000)
    begun = time.perf_counter_ns()
    found = run.sql(query)
    rows = found.limit(limit + 1).fetchall()
    columns = [{"name": name, "type": str(type)} for name, type in zip(found.columns, found.types, strict=True)]
    return {
        "columns": columns,
        "rows": [list(row) for row in rows[:limit]],
        "truncated": len(rows) > limit,
        "ns": time.perf_counter_ns() - begun,
    }
