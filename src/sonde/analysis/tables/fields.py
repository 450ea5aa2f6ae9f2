"""The table `fields`: the fields of the batches that `--learning` sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.tables.learning import BATCH, sampled, view
from sonde.store.probe import FIELD

if TYPE_CHECKING:
    import duckdb

_WHOLE = ("size", "distinct", "tokens")
_MEASURED = {name: name for name in ("low", "high", "mean", "std", "nonfinite", "padding", *_WHOLE)}
_MADE = {
    "step": "CASE WHEN s.key IS NULL THEN s.step ELSE b.step END",  # a loop may fetch ahead
    "field": "s.name",
    **BATCH,
    **{name: f"s.{name}::BIGINT" for name in _WHOLE},
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table. The step of a field is that of its batch: the table `batches` must be there."""
    place = " AND ".join(f"b.{name} = ({made})" for name, made in BATCH.items())
    source = f"{sampled(FIELD, _MEASURED)} LEFT JOIN batches b ON b.process = s.process AND {place}"
    connection.execute(view("fields", _MADE, source))
