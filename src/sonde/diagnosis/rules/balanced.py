"""BALANCED: nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.room import QUERY, REMEDY, told, without_room
from sonde.diagnosis.speed import TRAIN
from sonde.diagnosis.wording import PHASE_WORDS, ms, percent
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def balanced(facts: Facts, policy: Policy) -> Finding | None:
    """There are enough steps, and no other rule has something to say about their speed."""
    if not enough_steps(facts, policy) or not facts.speed.ranks or facts.speed.train is None:
        return None
    rank = facts.speed.ranks[0]
    shares = {phase: share for phase, share in rank.share.items() if share.value is not None}
    largest = max(shares, key=lambda phase: shares[phase].or_zero(), default=None)
    if largest is None:
        return None
    figures = {"step ns": rank.usual[TRAIN], f"{largest}, share of the training time": shares[largest]}
    why = (
        f"Nothing stands out: a usual step takes {ms(rank.usual[TRAIN].value)}, and the largest part of it is "
        f"{PHASE_WORDS[largest]} with {percent(shares[largest].value)}."
    )
    next = "Nothing needs to be done; `sonde deep` shows the layers, if it should be faster."
    crowded = facts.health.crowded_host(policy)
    if crowded is not None:
        figures |= crowded.loads
        why += f" But {crowded.told}: single long steps, items and waits may be their doing, and are not counted."
        next = "Let it run on a host that is free, to see what is its own."
    lost = facts.ends.lost
    if without_room(lost):
        figures["records lost"] = Figure(lost.total, QUERY)
        why = f"{told(lost)}In what is there, {why[0].lower()}{why[1:]}"
        next = REMEDY
    doubted = crowded is not None or bool(without_room(lost))
    return finding("BALANCED", INFO, 0.5 if doubted else 0.8, why, next, score=0.0, figures=figures)
