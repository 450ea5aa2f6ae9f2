"""Which ranks the others wait for, how long, and what these do in that time.

Ranks that train together end each step together. Who comes late waits the least for the others: in communication, or in
backward where communication hides in it. What the late ones spend more than the others on is the cause. Ranks of one host that are
late together are that host.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.speed import TRAIN
from sonde.diagnosis.waits import RankGroup, group

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.analysis.questions.items import StepItem
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import RankSpeed
    from sonde.finding import Finding

INPUT, COMPUTE = "input", "compute"
_COMPUTE = ("h2d", "forward", "backward", "optimizer")
_WAITING = (("communication",), ("communication", "backward"))


@dataclass(frozen=True)
class Late:
    """Ranks that the others wait for. `cause`: input, compute, or None; `phase`: what they spend most more on."""

    ranks: list[RankSpeed]  # the latest first
    group: RankGroup
    others: list[RankSpeed]
    gap_ns: float  # what the others wait in a step because of them
    share: float
    cause: str | None
    phase: str | None
    more_ns: float  # what they spend more on that phase
    slowest: float | None  # the share of the steps in which one of them is the slowest
    items: list[StepItem]  # the slowest that they loaded in the steps in which the others waited longest
    figures: dict[str, Figure]

    @property
    def verb(self) -> str:
        """What a verb in a sentence about them lacks."""
        return "" if self.group.several else "s"

    @property
    def often(self) -> str:
        """In which part of the steps they are the slowest, as a sentence; nothing if that is not known."""
        if self.slowest is None:
            return ""
        who = "One of them is" if len(self.ranks) > 1 else "It is"
        return f" {who} the slowest rank in {units.share(self.slowest)} of the steps."

    def evidence(self) -> dict[str, Any]:
        """What goes into the evidence of a finding."""
        return {
            "ranks": [one.rank for one in self.ranks],
            "hosts": sorted({one.host for one in self.ranks}),
            "pattern": self.group.pattern,
            "slowest_share": self.slowest,
            "items": [one.name for one in self.items],
            "phase": self.phase,
        }


def late_ranks(facts: Facts, policy: Policy) -> list[Late]:
    """The ranks that the others wait for; apart, if they are late for different reasons. Empty if nobody waits, or there is one rank only."""
    ranks = [rank for rank in facts.speed.distributed if rank.usual[TRAIN].value is not None]
    if len(ranks) < 2:
        return []
    gap, waiting, latest = max((_gap(ranks, waiting) for waiting in _WAITING), key=lambda found: found[0])
    waits = {one.process: _waited(one, waiting) for one in ranks}
    late = sorted(
        (one for one in ranks if waits[one.process] <= waits[latest.process] + gap / 2),
        key=lambda one: waits[one.process],
    )
    late = late if len(late) <= len(ranks) // 2 else [latest]
    job = _Job(ranks, [one for one in ranks if one not in late], waiting)
    if gap <= 0 or job.step <= 0:
        return []
    together = _late(facts, policy, job, late, gap)
    usual = waits[latest.process] + gap
    groups: dict[str | None, list[RankSpeed]] = {}
    for one in late:
        cause = _own_cause(_more([one], job.others, waiting), (usual - waits[one.process]) * policy["straggler.covers"])
        groups.setdefault(cause or together.cause, []).append(one)
    if len(groups) < 2:
        return [together]
    return [_late(facts, policy, job, some, usual - waits[some[0].process]) for some in groups.values()]


@dataclass(frozen=True)
class _Job:
    """The ranks of a job, those of them that are not late, and the phases in which ranks wait for each other."""

    ranks: list[RankSpeed]
    others: list[RankSpeed]
    waiting: tuple[str, ...]

    @property
    def step(self) -> float:
        """A usual step of those that are not late."""
        return median(one.usual[TRAIN].or_zero() for one in self.others)


def _late(facts: Facts, policy: Policy, job: _Job, late: list[RankSpeed], gap: float) -> Late:
    """These ranks, the latest first, for which the others wait so long."""
    more = _more(late, job.others, job.waiting)
    phase = max(more, key=lambda name: more[name], default=None)
    largest = more[phase] if phase is not None else 0.0
    processes = {one.process for one in late}
    slowest, _ = facts.waits.of(processes)
    return Late(
        ranks=late,
        group=group(late, job.ranks, policy["straggler.host"]),
        others=job.others,
        gap_ns=gap,
        share=gap / job.step,
        cause=_cause(more, gap * policy["straggler.covers"]),
        phase=phase if largest >= gap * policy["straggler.covers"] else None,
        more_ns=largest,
        slowest=slowest / facts.waits.steps.or_zero() if facts.waits.steps.or_zero() else None,
        items=facts.waits.items(processes),
        figures=_figures(late[0], job.others, job.waiting, phase),
    )


def straggling(
    facts: Facts, policy: Policy, kind: str, cause: str, does: Callable[[Late], str], next: str
) -> Finding | None:
    """A finding about late ranks, if this is the cause. `does` says what they do; `next` has a place for their name."""
    found = late_ranks(facts, policy) if enough_steps(facts, policy) else []
    mine = [one for one in found if one.cause == cause]
    if not mine or (cause == COMPUTE and _loses_its_core(facts, policy, mine[0])):
        return None
    late = mine[0]
    severity = graded(policy, "straggler", Figure(late.share, ""), late.gap_ns)
    if severity is None:
        return None
    return finding(
        kind,
        severity,
        0.9,
        f"The other ranks wait {units.duration(late.gap_ns)} in a median step ({units.share(late.share)}) for {late.group.name}, "
        f"which {does(late)}.{late.often}",
        next.format(late.group.short),
        score=late.share,
        figures=late.figures,
        **late.evidence(),
    )


def _loses_its_core(facts: Facts, policy: Policy, late: Late) -> bool:
    """On a host whose cores others use, a rank may lose its own now and then; what it computes longer it does in every step."""
    if not facts.health.crowded(policy) and _waited_for_a_core(facts, late) < late.share * policy["straggler.covers"]:
        return False
    if late.phase is None:
        return True
    low = median(one.low[late.phase].or_zero() for one in late.ranks)
    more = low - median(one.low[late.phase].or_zero() for one in late.others)
    return bool(more < late.gap_ns * policy["straggler.covers"])


def _waited_for_a_core(facts: Facts, late: Late) -> float:
    """The share of the time for which late ranks wait longer for a core than the others on their host."""
    delays = facts.health.delays
    known = [[delays.get((one.host, one.pid or 0)) for one in ranks] for ranks in (late.ranks, late.others)]
    if len({one.host for one in (*late.ranks, *late.others)}) > 1 or None in known[0] or None in known[1]:
        return 0.0
    more, usual = (median(one or 0.0 for one in some) for some in known)
    return (more - usual) / 100


def _gap(ranks: list[RankSpeed], waiting: tuple[str, ...]) -> tuple[float, tuple[str, ...], RankSpeed]:
    """How much longer the others wait than the one that waits the least."""
    waits = {rank.process: _waited(rank, waiting) for rank in ranks}
    least = min(ranks, key=lambda rank: waits[rank.process])
    others = median(waits[rank.process] for rank in ranks if rank is not least)
    return others - waits[least.process], waiting, least


def _waited(rank: RankSpeed, waiting: tuple[str, ...]) -> float:
    return sum(rank.usual[phase].or_zero() for phase in waiting)


def _more(late: list[RankSpeed], others: list[RankSpeed], waiting: tuple[str, ...]) -> dict[str, float]:
    """What late ranks spend more on each phase than the others."""
    phases = [phase for phase in late[0].usual if phase != TRAIN and phase not in waiting]
    return {
        phase: median(one.usual[phase].or_zero() for one in late) - median(one.usual[phase].or_zero() for one in others)
        for phase in phases
    }


def _cause(more: dict[str, float], least: float) -> str | None:
    if more.get("input_wait", 0.0) >= least:
        return INPUT
    return COMPUTE if sum(more.get(phase, 0.0) for phase in _COMPUTE) >= least else None


def _own_cause(more: dict[str, float], least: float) -> str | None:
    """The cause of one rank, if it is what that rank spends most more on."""
    cause, phase = _cause(more, least), max(more, key=lambda name: more[name], default=None)
    return cause if phase == "input_wait" or phase in _COMPUTE else None


def _figures(
    rank: RankSpeed, others: list[RankSpeed], waiting: tuple[str, ...], phase: str | None
) -> dict[str, Figure]:
    found = {}
    for one in [rank, *others][:8]:
        for name in (TRAIN, *waiting, *([phase] if phase else [])):
            if name in one.usual:
                found[f"rank {one.rank} {name} ns"] = one.usual[name]
    return found
