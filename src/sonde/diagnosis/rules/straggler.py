"""STRAGGLER: the ranks wait for one, and its phases do not say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import PHASE_WORDS, enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.stragglers import Late, late_ranks
from sonde.diagnosis.waits import group
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import RankSpeed


def straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for a rank or host whose phases do not explain why, or the slow rank changes."""
    if not enough_steps(facts, policy):
        return None
    found = [
        (late, severity)
        for late in late_ranks(facts, policy)
        if (severity := graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)) is not None
    ]
    if not found:
        return None if facts.health.crowded(policy) else _now_and_then(facts, policy) or _changing(facts, policy)
    for late, severity in found:
        chance = late.phase is None and facts.health.crowded(policy)  # which rank loses its core
        if late.cause is None and not chance:
            return _one(late, severity)
    return None


def _one(late: Late, severity: str) -> Finding:
    who = late.group.name
    cause = "no phase explains why"
    if late.phase is not None:
        cause = f"the difference is {units.duration(late.more_ns)} in {PHASE_WORDS[late.phase]}"
    return finding(
        "STRAGGLER",
        severity,
        0.8,
        f"The other ranks wait {units.duration(late.gap_ns)} in a median step ({units.share(late.share)}) for {who}; {cause}.{late.often}",
        f"Compare {late.group.short} with the others: logging, saving or evaluating in one rank only, and other load on its host.",
        score=late.share,
        figures=late.figures,
        **late.evidence(),
    )


def _now_and_then(facts: Facts, policy: Policy) -> Finding | None:
    """Most of the waiting is for one rank, or one host, which is late in some steps only."""
    waits, ranks = facts.waits, facts.speed.distributed
    late = _owner(facts, policy)
    if not late:
        return None
    steps, waited = waits.of({one.process for one in late})
    share = Figure(waited / waits.whole.or_zero(), f"SELECT {waited} / ({waits.whole.query})")
    if graded(policy, "straggler", share, waited / steps) is None:
        return None
    who, items = group(late, ranks, policy["straggler.host"]), waits.items({one.process for one in late})
    loading = f", with items such as {items[0].name} ({units.duration(items[0].dur_ns)})" if items else ""
    return finding(
        "STRAGGLER",
        WARN,
        0.7,
        f"Now and then {who.name} is late, in {units.plural(steps, 'step')} of {units.count(waits.steps.value)}{loading}. The "
        f"others wait {units.duration(waited)} in total, {units.share(share.value)} of the time.",
        f"Look at the slowest steps of {who.short}: items, files, saving or logging, and other load on its host.",
        score=share.value,
        figures={"steps of all ranks": waits.steps, "waiting ns": waits.waited, "share of the time": share},
        ranks=[one.rank for one in late],
        hosts=sorted({one.host for one in late}),
        pattern=f"{who.pattern}, now and then",
        items=[one.name for one in items],
    )


def _owner(facts: Facts, policy: Policy) -> list[RankSpeed]:
    """The rank for which most of the waiting is, or else all ranks of such a host; none if there is neither."""
    waits, ranks = facts.waits, facts.speed.distributed
    enough = waits.waited.or_zero() * policy["straggler.owns"]
    if not waits.ranks or not enough:
        return []
    if waits.ranks[0].waited_ns >= enough:
        return [one for one in ranks if one.process == waits.ranks[0].process]
    hosts = {one.host for one in ranks}
    for host in sorted(hosts) if len(hosts) > 1 else []:
        there = [one for one in ranks if one.host == host]
        if 1 < len(there) < len(ranks) / 2 and waits.of({one.process for one in there})[1] >= enough:
            return there
    return []


def _changing(facts: Facts, policy: Policy) -> Finding | None:
    share, waiting = facts.speed.together["waiting_share"], facts.speed.together["waiting"]
    if graded(policy, "straggler", share, waiting) is None:
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
