"""LEARNING_RATE: the learning rate is near zero for many steps, or jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.learning.rates import LearningRates
    from sonde.diagnosis.policy import Policy


def learning_rate(facts: Facts, policy: Policy) -> Finding | None:
    """The learning rate is zero or near zero for a large share of the steps, or jumps to many times its previous maximum."""
    rates = facts.learning.rates
    steps = rates.steps.or_zero()
    if steps < policy["learning_rate.least_steps"] or not rates.groups:
        return None
    return _zero(rates, policy, steps) or _jump(rates, policy, steps)


def _zero(rates: LearningRates, policy: Policy, steps: float) -> Finding | None:
    optimizers: dict[int, list[float]] = {}
    for one in rates.groups:
        optimizers.setdefault(one.optimizer, []).append(one.figures["zero_steps"].or_zero() / steps)
    # A group that never had a rate is frozen on purpose, if its optimizer has others.
    zero = next(
        (one for one in rates.groups if min(optimizers[one.optimizer]) >= policy["learning_rate.warn_share"]), None
    )
    if zero is None:
        return None
    share = zero.figures["zero_steps"].or_zero() / steps
    return finding(
        "LEARNING_RATE",
        CRITICAL if share >= policy["learning_rate.critical_share"] else WARN,
        0.95,
        f"The learning rate is {units.brief(zero.figures['last'].or_zero())} at the end, and near zero in {units.share(share)} of "
        f"the steps, from step {zero.figures['first_zero'].or_zero():.0f} on. Its highest value was {units.brief(zero.figures['most'].or_zero())}.",
        "Check the schedule: its number of steps, and whether it steps once per update or once per epoch.",
        score=share,
        figures={
            "steps": rates.steps,
            "steps near zero": zero.figures["zero_steps"],
            "first of them": zero.figures["first_zero"],
            "highest rate": zero.figures["most"],
            "last rate": zero.figures["last"],
        },
        steps=[int(zero.figures["first_zero"].or_zero())],
        optimizer=zero.optimizer,
        group=zero.group,
    )


def _jump(rates: LearningRates, policy: Policy, steps: float) -> Finding | None:
    jumped = max(rates.groups, key=lambda one: one.figures["jump"].or_zero())
    figures = jumped.figures
    step = figures["jump_step"].or_zero()
    if figures["jump"].or_zero() < policy["learning_rate.jump"]:
        return None
    return finding(
        "LEARNING_RATE",
        WARN,
        0.85,
        f"The learning rate jumps from {units.brief(figures['before'].or_zero())} to {units.brief(figures['after'].or_zero())} in step {step:.0f}, "
        f"{units.times(figures['jump'].or_zero())} its previous maximum.",
        f"Check the schedule and what a checkpoint restores at step {step:.0f}.",
        score=max(0.1, 1 - step / steps),
        figures={
            "highest rate before": figures["before"],
            "rate after": figures["after"],
            "step": figures["jump_step"],
        },
        steps=[int(step)],
        optimizer=jumped.optimizer,
        group=jumped.group,
    )
