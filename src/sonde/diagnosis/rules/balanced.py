"""BALANCED: nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding
from sonde.diagnosis.speed import TRAIN
from sonde.diagnosis.wording import PHASE_WORDS, ms, percent
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


CROWDED = " Other programs use most of the cores of this host, so that waiting may be theirs."


def balanced(facts: Facts, policy: Policy) -> Finding | None:
    """There are enough steps, and no other rule has something to say about their speed."""
    if not enough_steps(facts, policy) or not facts.speed.ranks or facts.speed.train is None:
        return None
    rank = facts.speed.ranks[0]
    shares = {phase: share for phase, share in rank.share.items() if share.value is not None}
    largest = max(shares, key=lambda phase: shares[phase].or_zero(), default=None)
    if largest is None:
        return None
    crowded = any(host.crowded(policy) for host in facts.health.hosts)
    return finding(
        "BALANCED",
        INFO,
        0.5 if crowded else 0.8,
        f"Nothing stands out: a step takes {ms(rank.usual[TRAIN].value)}, and the largest part of it is "
        f"{PHASE_WORDS[largest]} with {percent(shares[largest].value)}.{CROWDED if crowded else ''}",
        "Judge it again on a host that is free."
        if crowded
        else "Nothing needs to be done; `sonde deep` shows the layers, if it should be faster.",
        score=0.0,
        figures={"step ns": rank.usual[TRAIN], f"{largest}, share of the training time": shares[largest]},
    )
