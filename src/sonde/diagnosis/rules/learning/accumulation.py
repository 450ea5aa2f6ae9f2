"""GRADIENT_ACCUMULATION: gradients of several batches do not add up to their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


MOST = 256  # micro-batches: a larger divisor is a number of tokens or items


def gradient_accumulation(facts: Facts, policy: Policy) -> Finding | None:
    """Gradients of the previous step are still there, or losses are not divided by the number of micro-batches."""
    carried, micro = facts.learning.modes.carried, facts.learning.batches.micro
    steps = carried["steps"].or_zero()
    share = carried["carried"].or_zero() / steps if steps else 0.0
    if steps >= policy["learning.samples"] and share >= policy["gradient_accumulation.carried_share"]:
        return finding(
            "GRADIENT_ACCUMULATION",
            CRITICAL,
            0.95,
            f"In {units.share(share)} of the sampled steps, the gradients of the previous step are still there: the update uses the sum of both.",
            "Call optimizer.zero_grad() once for each update.",
            score=share,
            figures={"sampled steps": carried["steps"], "with old gradients": carried["carried"]},
        )
    count, divisor = micro["micro"].or_zero(), micro["divisor"].or_zero()
    usual = micro["times"].or_zero() / max(1.0, micro["losses"].or_zero())
    if count < 2 or micro["batches"].or_zero() != count or usual < policy["gradient_accumulation.usual_share"]:
        return None
    if (
        divisor < 0
        or divisor > MOST
        or divisor == count
        or micro["steps"].or_zero() < policy["gradient_accumulation.least_steps"]
    ):
        return None
    by = f"divided by {divisor:.0f}" if divisor else "not divided"
    return finding(
        "GRADIENT_ACCUMULATION",
        WARN,
        0.7,
        f"Each update adds up {count:.0f} micro-batches, but their losses are {by}: gradients are {units.times(count / (divisor or 1))} their mean.",
        f"Divide each loss by {count:.0f}, or set the learning rate for the sum on purpose.",
        score=0.6,
        figures={"micro-batches": micro["micro"], "divisor": micro["divisor"], "losses": micro["losses"]},
    )
