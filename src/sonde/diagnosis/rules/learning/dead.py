"""DEAD_RELU: most units of a layer give 0 for every item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


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
    if not dead:
        return None
    worst = max(dead, key=lambda one: one.figures["dead"].or_zero())
    share = worst.figures["dead"].or_zero()
    others = f" {units.plural(len(dead) - 1, 'other layer is', 'other layers are')} similar." if len(dead) > 1 else ""
    return finding(
        "DEAD_RELU",
        CRITICAL if share >= policy["dead_relu.critical_share"] else WARN,
        0.85,
        f"{units.share(share)} of the units of layer {worst.name.partition('/')[2]} are 0 for every item, in a median sample of the later half.{others}",
        "Lower the learning rate, check biases and the initialisation, or use LeakyReLU or GELU.",
        score=1.0,
        figures={"sampled steps": layers.samples, "dead units": worst.figures["dead"], "zeros": worst.figures["zeros"]},
        layers=[one.name for one in dead],
    )
