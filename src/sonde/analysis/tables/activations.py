"""The table `activations`: the output of each layer in the steps sampled by `--learning`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.tables.learning import LAYER, MODEL, sampled, view
from sonde.store.probe import ACTIVATION

if TYPE_CHECKING:
    import duckdb

_MEASURED = {name: name for name in ("mean", "std", "zeros", "saturated", "dead")}
_MADE = {"model": MODEL, "layer": LAYER, "calls": "s.key"}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table."""
    connection.execute(view("activations", _MADE, sampled(ACTIVATION, _MEASURED)))
