"""INPUT_STRAGGLER: the ranks wait for one that waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.lateness import INPUT, late_rank
from sonde.diagnosis.wording import ms, percent, rank_word

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.finding import Finding


def input_straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one, and that one waits longer for its data than they do."""
    late = late_rank(facts, policy) if enough_steps(facts, policy) else None
    if late is None or late.cause != INPUT:
        return None
    severity = graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)
    if severity is None:
        return None
    return finding(
        "INPUT_STRAGGLER",
        severity,
        0.9,
        f"The other ranks wait {ms(late.gap_ns)} in each step ({percent(late.share)}) for {rank_word(late.rank.rank)}, which "
        f"waits {ms(late.more_ns)} longer for its data than they do.",
        f"Look at the loader of {rank_word(late.rank.rank)}: its disk, its part of the data, and its workers.",
        score=late.share,
        figures=late.figures,
        ranks=[late.rank.rank],
    )
