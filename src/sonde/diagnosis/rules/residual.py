"""RESIDUAL_HEAVY: time goes into code that belongs to no phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.wording import ms, percent

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def residual_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """The rank in the middle spends a large share of its training time outside of all phases."""
    share, lasting = facts.speed.middle("residual")
    severity = graded(policy, "residual_heavy", share, lasting)
    if severity is None or not enough_steps(facts, policy):
        return None
    return finding(
        "RESIDUAL_HEAVY",
        severity,
        0.8,
        f"In a usual step {ms(lasting.value)} ({percent(share.value)} of its training time) lie in no phase: code of the loop "
        "itself, such as logging, metrics, printing, .item() or moving data.",
        "Look at what the loop does between forward, backward and update, mark it with sonde.span(), and do it less often.",
        score=share.value,
        figures={"share of the training time": share, "outside of phases in a step ns": lasting},
    )
