"""CHECKPOINT_HEAVY: saving takes too much of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import heavy

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def checkpoint_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """Saving checkpoints takes a large share of the total time."""
    next = "Save less often, in the background (torch.distributed.checkpoint.async_save), or to a faster disk."
    return heavy(facts, policy, "CHECKPOINT_HEAVY", "checkpoint", "Saving checkpoints", next)
