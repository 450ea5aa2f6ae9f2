"""SATURATED: most outputs of a layer are at the ends of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import idle_outputs

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def saturated(facts: Facts, policy: Policy) -> Finding | None:
    """Most results of a sigmoid or tanh inside a model lie at the ends of its range, where gradients vanish. Needs `--learning`."""
    layers = facts.learning.layers
    if not layers.samples.at_least(policy["learning.samples"]):
        return None
    found = [
        one
        for one in layers.activations
        if one.feeds and one.figures["saturated"].at_least(policy["saturated.warn_share"])
    ]
    critical = policy["saturated.critical_share"]
    what = "outputs of layer {layer} are at the ends of its range"
    next = "Normalise the inputs, use smaller initial weights or a normalisation layer before it, or lower the learning rate."
    return idle_outputs(facts, "SATURATED", found, "saturated", critical, what, next)
