"""TRAINED_IN_EVALUATION_MODE: dropout and batch norm are off in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def trained_in_evaluation_mode(facts: Facts, policy: Policy) -> Finding | None:
    """A model with dropout or batch norm is trained in evaluation mode. Needs `--learning`."""
    for one in facts.learning.modes.models:
        share = one["wrong"].or_zero() / max(1.0, one["steps"].or_zero())
        if share < policy["trained_in_evaluation_mode.warn_share"]:
            continue
        first = one["first"].or_zero()
        return finding(
            "TRAINED_IN_EVALUATION_MODE",
            WARN,
            0.85,
            f"{one.which['name']} is trained in evaluation mode {'from step ' + format(first, ',.0f') + ' on' if first else 'from the start'}: "
            "its dropout is off and its batch norm does not learn.",
            "Call model.train() after each evaluation.",
            score=share,
            figures={"steps": one["steps"], "in evaluation mode": one["wrong"], "first of them": one["first"]},
            steps=[int(first)],
        )
    return None
