"""DEAD_RELU: most units of a layer give 0 for every item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import idle_outputs

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def dead_relu(facts: Facts, policy: Policy) -> Finding | None:
    """Most units of a ReLU are 0 for every item of the batch, and stop learning. Needs `--learning`."""
    layers = facts.learning.layers
    if not layers.samples.at_least(policy["learning.samples"]):
        return None
    dead = [
        one
        for one in layers.activations
        if one.feeds
        and one.figures["dead"].at_least(policy["dead_relu.warn_share"])
        and one.figures["zeros"].at_least(policy["dead_relu.zeros"])
    ]
    critical = policy["dead_relu.critical_share"]
    what = "units of layer {layer} are 0 for every item"
    next = "Lower the learning rate, check biases and the initialisation, or use LeakyReLU or GELU."
    return idle_outputs(facts, "DEAD_RELU", dead, "dead", critical, what, next, "zeros")
