"""The table `gradients`: gradients, weights and updates of each layer in the steps that `--learning` sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.tables.learning import LAYER, MODEL, sampled, view
from sonde.store.probe import GRADIENT

if TYPE_CHECKING:
    import duckdb

_MEASURED = {
    "norm": "norm",
    "zeros": "zeros",
    "nonfinite": "nonfinite",
    "weight_norm": "weight",
    "update_norm": "update",
}
_MADE = {
    "optimizer": "s.key >> 16",
    "param_group": "s.key & 65535",
    "model": MODEL,
    "layer": LAYER,
    "update_ratio": "s.update_norm / nullif(s.weight_norm, 0)",
}


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table."""
    connection.execute(view("gradients", _MADE, sampled(GRADIENT, _MEASURED)))
