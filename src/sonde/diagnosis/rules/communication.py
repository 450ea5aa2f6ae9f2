"""COMM_BOUND: ranks spend their time exchanging data, without waiting for any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.rules.oversubscribed import cpu_oversubscribed
from sonde.finding import WARN

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def comm_bound(facts: Facts, policy: Policy) -> Finding | None:
    """Communication takes a large share of the training time, even for the last rank to arrive."""
    if facts.speed.distributed:
        share, lasting = facts.speed.together["least_share"], facts.speed.together["least"]
    else:
        share, lasting = facts.speed.middle("communication")
    severity = graded(policy, "comm_bound", share, lasting)
    if severity is None or not enough_steps(facts, policy):
        return None
    if cpu_oversubscribed(facts, policy) is not None:
        severity = WARN  # an exchange that waits for a core counts as communication too
    return finding(
        "COMM_BOUND",
        severity,
        0.8,
        f"Communication takes {units.duration(lasting.value)} of a median step even for the last rank to arrive: "
        f"{units.share(share.value)} of its training time.",
        "Communicate less often (gradient accumulation, larger batches), send less (bf16 compression), or use a "
        "faster network.",
        score=share.value,
        figures={"share of the training time": share, "communication in a median step ns": lasting},
    )
