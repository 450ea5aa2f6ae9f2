"""EXPLODING_GRADIENTS: gradients are, or become, many times too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def exploding_gradients(facts: Facts, policy: Policy) -> Finding | None:
    """Gradients grow many times over, are far above their clipping limit, or are larger than the weights. Needs `--learning`."""
    layers = facts.learning.layers
    if not layers.samples.at_least(policy["learning.samples"]):
        return None
    norm, clip = layers.norm, layers.clipping
    early, late, most = norm["early"].or_zero(), norm["late"].or_zero(), norm["most"].or_zero()
    clipped = clip["norm"].or_zero() / clip["limit"].or_zero() if clip["limit"].or_zero() > 0 else 0.0
    grown = late / early if early > 0 else 0.0
    relative = norm["relative"].or_zero()
    figures = {
        "sampled steps": layers.samples,
        "median norm": norm["median"],
        "highest norm": norm["most"],
        "first quarter": norm["early"],
        "last quarter": norm["late"],
    }
    if clipped >= policy["exploding_gradients.clipped"]:
        why = (
            f"Gradients are {units.times(clipped)} their clipping limit in a median step (norm {units.brief(clip['norm'].or_zero())}, "
            f"limit {units.brief(clip['limit'].or_zero())})."
        )
        figures = {"median norm before clipping": clip["norm"], "clipping limit": clip["limit"]}
    elif grown >= policy["exploding_gradients.growth"] and relative >= policy["exploding_gradients.least"]:
        why = f"Gradients grow: the median norm is {units.brief(early)} in the first quarter of the samples and {units.brief(late)} in the last."
    elif relative >= policy["exploding_gradients.relative"]:
        why = f"Gradients are {units.times(relative)} as large as the weights in a median step (norm {units.brief(norm['median'].or_zero())})."
        figures["relative to the weights"] = norm["relative"]
    else:
        return None
    falls = facts.learning.curve.end.or_zero() < facts.learning.curve.begin.or_zero()
    return finding(
        "EXPLODING_GRADIENTS",
        WARN if falls else CRITICAL,
        0.85,
        why
        if "clipping limit" in figures
        else f"{why} The highest is {units.brief(most)}, in step {norm['step'].or_zero():.0f}.",
        "Lower the learning rate, normalise inputs and targets, check the initialisation, and clip gradients.",
        score=1.0,
        figures=figures,
        steps=[int(norm["step"].or_zero())],
    )
