"""COMPUTE_STRAGGLER: the ranks wait for one that computes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.lateness import COMPUTE, late_rank
from sonde.diagnosis.wording import PHASE_WORDS, ms, percent, rank_word

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def compute_straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one, and that one computes longer than they do."""
    late = late_rank(facts, policy) if enough_steps(facts, policy) else None
    if late is None or late.cause != COMPUTE:
        return None
    severity = graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)
    if severity is None:
        return None
    return finding(
        "COMPUTE_STRAGGLER",
        severity,
        0.9,
        f"The other ranks wait {ms(late.gap_ns)} in each step ({percent(late.share)}) for {rank_word(late.rank.rank)}, which "
        f"computes longer than they do, most of it in {PHASE_WORDS[late.phase or 'forward']}.",
        f"Look at the device or host of {rank_word(late.rank.rank)}: is it slower, shared, hot, or has it larger batches?",
        score=late.share,
        figures=late.figures,
        ranks=[late.rank.rank],
    )
