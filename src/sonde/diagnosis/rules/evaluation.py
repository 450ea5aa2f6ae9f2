"""EVALUATION_HEAVY: evaluating takes too much of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.diagnosis.wording import ms, percent, several
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def evaluation_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """A large share of the whole time is spent in evaluation."""
    total, whole = facts.speed.whole["evaluation"], facts.speed.whole["whole"]
    if not total.at_least(1e9 * policy["evaluation_heavy.least_s"]) or not whole.value:
        return None
    share = total.or_zero() / whole.value
    if share < policy["evaluation_heavy.warn_share"]:
        return None
    times = facts.speed.whole["evaluation_steps"]
    return finding(
        "EVALUATION_HEAVY",
        CRITICAL if share >= policy["evaluation_heavy.critical_share"] else WARN,
        0.9,
        f"Evaluation took {ms(total.value)} of {ms(whole.value)} ({percent(share)}), in {several(times.or_zero(), 'step')}.",
        "Evaluate less often, on fewer batches, or with a larger batch size under torch.inference_mode().",
        score=share,
        figures={"evaluation ns": total, "whole time ns": whole, "steps that waited for it": times},
    )
