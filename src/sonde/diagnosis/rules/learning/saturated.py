"""SATURATED: most outputs of a layer are at the ends of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


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
    if not found:
        return None
    worst = max(found, key=lambda one: one.figures["saturated"].or_zero())
    share = worst.figures["saturated"].or_zero()
    others = f" {units.plural(len(found) - 1, 'other layer is', 'other layers are')} similar." if len(found) > 1 else ""
    return finding(
        "SATURATED",
        CRITICAL if share >= policy["saturated.critical_share"] else WARN,
        0.85,
        f"{units.share(share)} of the outputs of layer {worst.name.partition('/')[2]} are at the ends of its range, in a median sample of the later half.{others}",
        "Normalise the inputs, use smaller initial weights or a normalisation layer before it, or lower the learning rate.",
        score=1.0,
        figures={"sampled steps": layers.samples, "saturated": worst.figures["saturated"]},
        layers=[one.name for one in found],
    )
