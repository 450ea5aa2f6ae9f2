"""Which rank the others wait for, how long, and what it does meanwhile.

Ranks that train together end each step together. Who comes late waits the least for the others: in communication, or in
backward where communication hides in it. What the late one spends more than the others on is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded, rank_word
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.speed import TRAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import RankSpeed
    from sonde.finding import Finding

INPUT, COMPUTE = "input", "compute"
_COMPUTE = ("h2d", "forward", "backward", "optimizer")
_WAITING = (("communication",), ("communication", "backward"))


@dataclass(frozen=True)
class Late:
    """A rank that the others wait for. `cause`: input, compute, or None; `phase`: what it spends most more on."""

    rank: RankSpeed
    others: list[RankSpeed]
    gap_ns: float  # what the others wait in a step because of it
    step_ns: float
    share: float
    cause: str | None
    phase: str | None
    more_ns: float  # what it spends more on that phase
    figures: dict[str, Figure]


def late_rank(facts: Facts, policy: Policy) -> Late | None:
    """The rank that the others wait for; None if they wait for none, or there is one rank only."""
    ranks = [rank for rank in facts.speed.distributed if rank.usual[TRAIN].value is not None]
    if len(ranks) < 2:
        return None
    gap, waiting, rank = max((_gap(ranks, waiting) for waiting in _WAITING), key=lambda found: found[0])
    others = [one for one in ranks if one is not rank]
    step = median(one.usual[TRAIN].or_zero() for one in others)
    if gap <= 0 or step <= 0:
        return None
    more = _more(rank, others, waiting)
    phase = max(more, key=lambda name: more[name], default=None)
    largest = more[phase] if phase is not None else 0.0
    return Late(
        rank, others, gap, step, gap / step, _cause(more, gap * policy["straggler.covers"]),
        phase if largest >= gap * policy["straggler.covers"] else None, largest, _figures(rank, others, waiting, phase),
    )  # fmt: skip


def straggling(
    facts: Facts, policy: Policy, kind: str, cause: str, does: Callable[[Late], str], next: str
) -> Finding | None:
    """A finding about the late rank, if this is the cause. `does` says what it does; `next` has a place for its name."""
    late = late_rank(facts, policy) if enough_steps(facts, policy) else None
    if late is None or late.cause != cause or (cause == COMPUTE and _loses_its_core(facts, policy, late)):
        return None
    severity = graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)
    if severity is None:
        return None
    who = rank_word(late.rank.rank)
    return finding(
        kind,
        severity,
        0.9,
        f"The other ranks wait {units.duration(late.gap_ns)} in a median step ({units.share(late.share)}) for {who}, which {does(late)}.",
        next.format(who),
        score=late.share,
        figures=late.figures,
        ranks=[late.rank.rank],
    )


def _loses_its_core(facts: Facts, policy: Policy, late: Late) -> bool:
    """On a host whose cores others use, a rank may lose its own now and then; what it computes longer it does in every step."""
    if not facts.health.crowded(policy):
        return False
    if late.phase is None:
        return True
    more = late.rank.low[late.phase].or_zero() - median(one.low[late.phase].or_zero() for one in late.others)
    return bool(more < late.gap_ns * policy["straggler.covers"])


def _gap(ranks: list[RankSpeed], waiting: tuple[str, ...]) -> tuple[float, tuple[str, ...], RankSpeed]:
    """How much longer the others wait than the one that waits the least."""
    waits = {rank.process: sum(rank.usual[phase].or_zero() for phase in waiting) for rank in ranks}
    least = min(ranks, key=lambda rank: waits[rank.process])
    others = median(waits[rank.process] for rank in ranks if rank is not least)
    return others - waits[least.process], waiting, least


def _more(rank: RankSpeed, others: list[RankSpeed], waiting: tuple[str, ...]) -> dict[str, float]:
    phases = [phase for phase in rank.usual if phase != TRAIN and phase not in waiting]
    return {
        phase: rank.usual[phase].or_zero() - median(one.usual[phase].or_zero() for one in others) for phase in phases
    }


def _cause(more: dict[str, float], least: float) -> str | None:
    if more.get("input_wait", 0.0) >= least:
        return INPUT
    return COMPUTE if sum(more.get(phase, 0.0) for phase in _COMPUTE) >= least else None


def _figures(
    rank: RankSpeed, others: list[RankSpeed], waiting: tuple[str, ...], phase: str | None
) -> dict[str, Figure]:
    found = {}
    for one in [rank, *others][:8]:
        for name in (TRAIN, *waiting, *([phase] if phase else [])):
            if name in one.usual:
                found[f"rank {one.rank} {name} ns"] = one.usual[name]
    return found
