"""UPDATE_RATIO: updates are too large or too small for the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.learning.layers import Layer
    from sonde.diagnosis.policy import Policy

WHICH = {"late_ratio": "a median one", "most_ratio": "the largest one", "early_ratio": "a median one"}


def update_ratio(facts: Facts, policy: Policy) -> Finding | None:
    """Updates change the weights far too much, or hardly at all, in sampled steps. Needs `--learning`."""
    layers = facts.learning.layers
    known = [one for one in layers.layers if one.figures["ratio"].or_zero() > 0]
    if not layers.samples.at_least(policy["learning.samples"]) or not known:
        return None
    known.sort(key=lambda one: -one.parameters)
    weights = sum(one.parameters for one in known)
    verdict = _too("late_ratio", known, weights, policy["update_ratio.most"], policy["update_ratio.share"])
    verdict = verdict or _too("most_ratio", known, weights, policy["update_ratio.once"], policy["update_ratio.share"])
    if verdict is not None:
        how, next = "too large", "Lower the learning rate by a factor of 10, or warm it up."
    else:
        small = [one for one in known if one.figures["early_ratio"].or_zero() <= policy["update_ratio.least"]]
        if sum(one.parameters for one in small) < policy["update_ratio.small_share"] * weights:
            return None
        verdict = small[0], "early_ratio"
        how, next = "too small", "Raise the learning rate by a factor of 10, and check weight precision."
    first, figure = verdict
    ratio = first.figures[figure].or_zero()
    return finding(
        "UPDATE_RATIO",
        WARN,
        0.8,
        f"Updates are {how}: {WHICH[figure]} changes layer {first.short} by {units.brief(ratio)} of its weights (typical: 0.0001 to 0.01).",
        next,
        score=0.8,
        figures={"sampled steps": layers.samples, "update to weight": first.figures[figure]},
        layers=[first.name],
        ratio=ratio,
    )


def _too(figure: str, known: list[Layer], weights: int, most: float, share: float) -> tuple[Layer, str] | None:
    """The largest layer whose updates reach a limit, if enough parameters are in such layers."""
    large = [one for one in known if one.figures[figure].at_least(most)]
    return (large[0], figure) if sum(one.parameters for one in large) >= share * weights and large else None
