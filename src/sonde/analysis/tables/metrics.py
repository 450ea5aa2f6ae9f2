"""The table `metrics`: losses and metrics logged by the program or its framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.records import schema
from sonde.store import probe

if TYPE_CHECKING:
    import duckdb

# A name that begins or ends with one of these, as a word, is of an evaluation.
EVALUATION = "eval|evaluation|val|valid|validation|test|dev"
_NAMED = f"regexp_matches(lower(name), '(^|[^a-z])({EVALUATION})([^a-z]|$)')"
_MADE = {
    "time_ns": "start_ns",
    "evaluation": f"CASE WHEN cat = '{probe.LOG}' OR key IS NULL THEN {_NAMED} ELSE key <> 0 END",
    "source": f"CASE WHEN cat = '{probe.LOG}' THEN 'sonde' ELSE substr(cat, {len(probe.METRIC) + 1}) END",
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table."""
    columns = ", ".join(f'{_MADE.get(name, name)} AS "{name}"' for name, _ in schema.METRICS)
    logged = f"kind = 'counter' AND (cat = '{probe.LOG}' OR starts_with(cat, '{probe.METRIC}'))"
    connection.execute(f"CREATE OR REPLACE VIEW metrics AS SELECT {columns} FROM {schema.BESIDE} WHERE {logged}")
