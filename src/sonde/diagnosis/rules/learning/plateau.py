"""LOSS_NOT_DECREASING: the loss stays where it began, or rises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def loss_not_decreasing(facts: Facts, policy: Policy) -> Finding | None:
    """The loss stays where it began, or ends above it."""
    curve = facts.learning.curve
    steps, begin, end = curve.losses.or_zero(), curve.begin.or_zero(), curve.end.or_zero()
    if steps < policy["loss_not_decreasing.least_steps"] or not curve.single or begin <= 0:
        return None
    if facts.learning.explores(policy["loss_not_decreasing.acting"]):
        return None
    noise = policy["loss_not_decreasing.scatter"] * curve.scatter.or_zero()
    fell = begin - curve.best.or_zero()
    flat = fell < max(policy["loss_not_decreasing.share"] * begin, noise)
    rises = end > policy["loss_not_decreasing.rise"] * begin and end - begin > noise
    if not flat and not rises:
        return None
    again = curve.epochs.or_zero() >= policy["loss_not_decreasing.critical_epochs"]
    what = "The loss rises" if rises else "The loss does not decrease"
    return finding(
        "LOSS_NOT_DECREASING",
        CRITICAL if rises or again else WARN,
        0.9 if rises else 0.75,
        f"{what}: {units.brief(begin)} in the first steps, {units.brief(end)} in the last tenth of {units.count(steps)} steps.",
        "Lower the learning rate by a factor of 10 and check the sign of the loss."
        if rises
        else "Check that labels match inputs, then try to overfit one batch with another learning rate.",
        score=1.0,
        figures={
            "losses": curve.losses,
            "first losses": curve.begin,
            "lowest part": curve.best,
            "last tenth": curve.end,
            "scatter": curve.scatter,
        },
    )
