"""OVERFITTING: the loss of the evaluation rises while that of training falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def overfitting(facts: Facts, policy: Policy) -> Finding | None:
    """The loss of an evaluation has been rising for some time while the loss of training falls. Needs logged evaluation losses."""
    for one in facts.learning.evaluations:
        best, last = one.figures["best"].or_zero(), one.figures["last"].or_zero()
        after = [value for step, value in one.values if step > one.figures["best_step"].or_zero()]
        if len(after) < policy["overfitting.least"] or best <= 0 or min(after) <= best:
            continue
        trained, now = one.figures["trained_best"].or_zero(), one.figures["trained_last"].or_zero()
        rises = last >= (1 + policy["overfitting.rise"]) * best
        falls = now <= (1 - policy["overfitting.fall"]) * trained
        if not rises or not falls:
            continue
        step = one.figures["best_step"].or_zero()
        return finding(
            "OVERFITTING",
            WARN,
            0.9,
            f"{one.name} rises from {units.brief(best)} at step {step:.0f} to {units.brief(last)}, while the training loss falls "
            f"from {units.brief(trained)} to {units.brief(now)}.",
            f"Stop near step {step:.0f} and keep that checkpoint; or add data, augmentation, dropout or weight decay.",
            score=1 - step / max(1.0, one.figures["last_step"].or_zero()),
            figures={
                "lowest": one.figures["best"],
                "its step": one.figures["best_step"],
                "last": one.figures["last"],
                "training loss at the lowest": one.figures["trained_best"],
                "training loss at the last": one.figures["trained_last"],
            },
            steps=[int(step)],
            metric=one.name,
        )
    return None
