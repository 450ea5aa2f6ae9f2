"""H2D_BOUND: copying from the host to a device takes too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def h2d_bound(facts: Facts, policy: Policy) -> Finding | None:
    """The median rank spends a large share of its training time copying data to a device."""
    share, copying = facts.speed.middle("h2d")
    severity, shown = graded(policy, "h2d_bound", share, copying), facts.speed.shown("h2d")
    if severity is None or not enough_steps(facts, policy):
        return None
    return finding(
        "H2D_BOUND",
        severity,
        0.85,
        f"Steps copy data to the device for {units.duration(facts.speed.each('h2d'))} on average, {units.share(shown.value)} of the "
        "step time.",
        "Use pin_memory=True and .to(device, non_blocking=True), and send smaller dtypes, such as uint8 images.",
        score=share.value,
        figures={
            "share of the step time": shown,
            "share of the training time in a median step": share,
            "copying in a median step ns": copying,
        },
    )
