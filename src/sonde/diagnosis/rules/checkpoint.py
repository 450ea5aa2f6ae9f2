"""CHECKPOINT_HEAVY: saving takes too much of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.diagnosis.wording import ms, percent, several
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def checkpoint_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """A large share of the whole time is spent saving checkpoints."""
    total, whole = facts.speed.whole["checkpoint"], facts.speed.whole["whole"]
    if not total.at_least(1e9 * policy["checkpoint_heavy.least_s"]) or not whole.value:
        return None
    share = total.or_zero() / whole.value
    if share < policy["checkpoint_heavy.warn_share"]:
        return None
    times = facts.speed.whole["checkpoint_steps"]
    return finding(
        "CHECKPOINT_HEAVY",
        CRITICAL if share >= policy["checkpoint_heavy.critical_share"] else WARN,
        0.9,
        f"Saving checkpoints took {ms(total.value)} of {ms(whole.value)} ({percent(share)}), in {several(times.or_zero(), 'step')}.",
        "Save less often, or in the background (torch.distributed.checkpoint.async_save), or to a faster disk.",
        score=share,
        figures={"checkpoint ns": total, "whole time ns": whole, "steps that waited for it": times},
    )
