"""EVALUATED_IN_TRAINING_MODE: dropout and batch norm were active in an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def evaluated_in_training_mode(facts: Facts, policy: Policy) -> Finding | None:
    """A model with dropout or batch norm is evaluated in training mode. Needs `--learning`."""
    forwards = facts.learning.modes.evaluated
    count, training = forwards["count"].or_zero(), forwards["training"].or_zero()
    if (
        count < policy["evaluated_in_training_mode.least"]
        or training / count < policy["evaluated_in_training_mode.warn_share"]
    ):
        return None
    return finding(
        "EVALUATED_IN_TRAINING_MODE",
        WARN,
        0.85,
        f"{training:,.0f} of {units.plural(count, 'batch', 'batches')} for evaluation were computed in training mode, although the model "
        "has dropout or batch norm.",
        "Call model.eval() before the evaluation and model.train() after it.",
        score=0.5,
        figures={"batches for evaluation": forwards["count"], "in training mode": forwards["training"]},
    )
