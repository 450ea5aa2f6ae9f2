"""EVALUATION_HEAVY: evaluating takes too much of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import heavy

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def evaluation_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """Evaluation takes a large share of the total time."""
    next = "Evaluate less often, on fewer batches, or with a larger batch size under torch.inference_mode()."
    return heavy(facts, policy, "EVALUATION_HEAVY", "evaluation", "Evaluation", next)
