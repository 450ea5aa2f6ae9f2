"""VANISHING_GRADIENTS: gradients shrink from layer to layer, to almost nothing in the first ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def vanishing_gradients(facts: Facts, policy: Policy) -> Finding | None:
    """Gradients shrink from layer to layer in the backward pass; the first layers get almost nothing. Needs `--learning`."""
    layers = facts.learning.layers
    if not layers.samples.at_least(policy["learning.samples"]):
        return None
    for model in layers.models().values():
        known = [one for one in model if one.figures["relative"].or_zero() > 0]
        if len(known) < policy["vanishing_gradients.layers"]:
            continue
        third = max(1, len(known) // 3)
        front = sorted(known[:third], key=lambda one: one.figures["relative"].or_zero())
        back = sorted(known[-third:], key=lambda one: one.figures["relative"].or_zero())
        first, last = front[len(front) // 2], back[len(back) // 2]
        ratio = first.figures["relative"].or_zero() / last.figures["relative"].or_zero()
        if ratio > policy["vanishing_gradients.ratio"]:
            continue
        return finding(
            "VANISHING_GRADIENTS",
            CRITICAL if ratio <= policy["vanishing_gradients.critical_ratio"] else WARN,
            0.85,
            f"Gradients vanish in the backward pass: relative to its weights, layer {first.short} gets {units.brief(ratio)} times the gradient of "
            f"layer {last.short} (norm {units.brief(first.figures['norm'].or_zero())}).",
            "Use ReLU-like activations, normalisation or skip connections, and an initialisation that fits them.",
            score=1.0,
            figures={
                "sampled steps": layers.samples,
                "gradient of the first": first.figures["norm"],
                "gradient of the last": last.figures["norm"],
                "first, relative to its weights": first.figures["relative"],
                "last, relative to its weights": last.figures["relative"],
            },
            layers=[first.name, last.name],
        )
    return None
