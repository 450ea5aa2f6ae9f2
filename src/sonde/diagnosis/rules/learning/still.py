"""LAYER_NOT_LEARNING: a layer stays as it is: frozen, without a gradient, or in no optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.learning.layers import Layer
    from sonde.diagnosis.policy import Policy


def layer_not_learning(facts: Facts, policy: Policy) -> Finding | None:
    """A layer never changes: it is in no optimizer, gets no gradient, or is frozen between layers that learn. Needs `--learning`."""
    layers = facts.learning.layers
    if not layers.samples.at_least(policy["learning.samples"]):
        return None
    for model in layers.models().values():
        size = sum(one.parameters for one in model)
        trainable = [one for one in model if not one.frozen]
        if not trainable or not any(one.gradient or one.optimized for one in model):
            continue
        for reason, stuck in _stuck(model, trainable).items():
            share = sum(one.parameters for one in stuck) / max(1, size)
            if stuck and share >= policy["layer_not_learning.least_share"]:
                return _found(facts, policy, reason, stuck, share)
    return None


WHY = {
    "optimizer": ("is in no optimizer", "are in no optimizer", "Pass all parameters that should learn to the optimizer, including those of layers created later."),
    "gradient": ("gets no gradient", "get no gradient", "Look for detach(), .data, no_grad() or a result that the loss does not use."),
    "zero": ("has a gradient of exactly 0", "have a gradient of exactly 0", "Look for a dead activation after it, or a factor of 0 in the loss."),
    "frozen": ("is frozen, although layers before it learn", "are frozen, although layers before them learn", "If that is not intended, call requires_grad_(True) on them."),
    "update": ("never changes although it has a gradient", "never change although they have gradients", "Check the learning rate of their parameter group, and the precision of the weights."),
}  # fmt: skip


def _stuck(model: list[Layer], trainable: list[Layer]) -> dict[str, list[Layer]]:
    """The layers that do not learn, by the reason."""
    learning = [one for one in trainable if one.gradient and one.optimized]
    before = min((one.place for one in learning), default=None)
    frozen = [one for one in model if one.frozen]
    few = sum(one.parameters for one in frozen) <= sum(one.parameters for one in trainable)
    own = [one for one in trainable if one.optimized and one.figures["samples"].or_zero() > 0]
    return {
        "optimizer": [one for one in trainable if one.gradient and not one.optimized],
        "gradient": [one for one in trainable if one.optimized and not one.gradient],
        "zero": [
            one for one in own if one.gradient and one.figures["zero"].or_zero() >= one.figures["samples"].or_zero()
        ],
        "frozen": [one for one in frozen if few and before is not None and one.place > before],
        "update": [
            one
            for one in own
            if one.figures["norm"].or_zero() > 0 and one.figures["still"].or_zero() >= one.figures["samples"].or_zero()
        ],
    }


def _found(facts: Facts, policy: Policy, reason: str, stuck: list[Layer], share: float) -> Finding:
    one, several, next = WHY[reason]
    first = stuck[0]
    more = (
        f" and {units.plural(len(stuck) - 1, 'other layer', 'other layers')} of {first.model}"
        if len(stuck) > 1
        else f" of {first.model}"
    )
    return finding(
        "LAYER_NOT_LEARNING",
        CRITICAL if share >= policy["layer_not_learning.critical_share"] and reason != "zero" else WARN,
        0.75 if reason == "frozen" else 0.9,
        f"Layer {first.short}{more} {several if len(stuck) > 1 else one} ({units.share(share)} of the parameters).",
        next,
        score=share,
        figures={"sampled steps": facts.learning.layers.samples, "gradient of the first": first.figures["norm"]},
        layers=[layer.name for layer in stuck],
        reason=reason,
    )
