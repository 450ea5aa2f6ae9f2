"""The layers of a model over a whole run: what each costs in a step, and how large it is. Recorded in deep mode only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class LayerTimes:
    """One layer. Times are means over the steps that have it, layers inside of it included."""

    layer: str
    type: str | None
    steps: int
    calls: int
    forward_ns: float | None
    backward_ns: float | None
    activation_bytes: int | None
    parameter_bytes: int | None
    gradient_bytes: int | None
    compiled: bool
    share: float | None  # of the time of the layers that have no other one around them


def layers(run: Run) -> list[LayerTimes]:
    """All layers, the costliest first."""
    rows = run.sql(
        """
        SELECT layer, any_value(type), count(*), sum(calls)::BIGINT, avg(forward_ns), avg(backward_ns),
               max(activation_bytes), max(parameter_bytes), max(gradient_bytes), coalesce(bool_or(compiled), false)
        FROM layers GROUP BY layer ORDER BY coalesce(avg(forward_ns), 0) + coalesce(avg(backward_ns), 0) DESC, layer
        """
    ).fetchall()
    names = {row[0] for row in rows}
    top = [row for row in rows if not any(row[0].startswith(f"{name}.") for name in names if name)]
    whole = sum((row[4] or 0) + (row[5] or 0) for row in top)
    return [_layer(row, whole) for row in rows]


def _layer(row: tuple[Any, ...], whole: float) -> LayerTimes:
    layer, type, steps, calls, forward, backward, activation, parameters, gradients, compiled = row
    share = ((forward or 0) + (backward or 0)) / whole if whole and not compiled else None
    return LayerTimes(
        layer, type, steps, calls or 0, forward, backward, activation, parameters, gradients, compiled, share
    )
