"""STRAGGLER: the ranks wait for one, and its phases do not say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import PHASE_WORDS, enough_steps, finding, graded, rank_word
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.stragglers import Late, late_rank
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one rank whose phases do not explain why, or the slow rank changes."""
    if not enough_steps(facts, policy):
        return None
    late = late_rank(facts, policy)
    severity = None if late is None else graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)
    if late is None or severity is None:
        return _changing(facts, policy)
    if late.phase is None and facts.health.crowded(policy):  # which rank loses its core is chance
        return None
    return _one(late, severity) if late.cause is None else None


def _one(late: Late, severity: str) -> Finding:
    who = rank_word(late.rank.rank)
    cause = "none of its phases explains why"
    if late.phase is not None:
        cause = f"it spends {units.duration(late.more_ns)} more in {PHASE_WORDS[late.phase]}"
    return finding(
        "STRAGGLER",
        severity,
        0.8,
        f"The other ranks wait {units.duration(late.gap_ns)} in a median step ({units.share(late.share)}) for {who}; {cause}.",
        f"Compare {who} with the others: logging, saving or evaluating in one rank only, and other load on its host.",
        score=late.share,
        figures=late.figures,
        ranks=[late.rank.rank],
        phase=late.phase,
    )


def _changing(facts: Facts, policy: Policy) -> Finding | None:
    share, waiting = facts.speed.together["waiting_share"], facts.speed.together["waiting"]
    if graded(policy, "straggler", share, waiting) is None or facts.health.crowded(policy):
        return None
    return finding(
        "STRAGGLER",
        WARN,
        0.6,
        f"In a median step some rank waits {units.duration(waiting.value)} ({units.share(share.value)}) for another, and the slow "
        "rank changes.",
        "Give all ranks the same amount of work (equal batch sizes, items sorted by length), and check the hosts for "
        "other load.",
        score=share.value,
        figures={"share of the training time": share, "waiting in a median step ns": waiting},
        ranks=[],
    )
