"""COMPUTE_BOUND: the time goes into the model, as it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding
from sonde.diagnosis.speed import TRAIN
from sonde.diagnosis.wording import PHASE_WORDS, ms, percent
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


PHASES = ("forward", "backward", "optimizer")


def compute_bound(facts: Facts, policy: Policy) -> Finding | None:
    """Most of the training time is forward, backward and optimizer."""
    if not enough_steps(facts, policy) or not facts.speed.ranks:
        return None
    known = sorted(facts.speed.ranks, key=lambda rank: sum(rank.share[phase].or_zero() for phase in PHASES))
    rank = known[(len(known) - 1) // 2]
    shares = {phase: rank.share[phase] for phase in PHASES if rank.share[phase].value is not None}
    whole = sum(share.or_zero() for share in shares.values())
    if whole < policy["compute_bound.share"]:
        return None
    largest = max(shares, key=lambda phase: shares[phase].or_zero())
    return finding(
        "COMPUTE_BOUND",
        INFO,
        0.9,
        f"{percent(min(whole, 1.0))} of a usual step is computing, most of it in {PHASE_WORDS[largest]} "
        f"({ms(rank.usual[largest].value)} of {ms(rank.usual[TRAIN].value)}).",
        "Nothing holds the model up; to go faster, make the model itself faster: `sonde deep` shows its layers.",
        score=min(whole, 1.0),
        figures={
            "step ns": rank.usual[TRAIN],
            **{f"{phase}, share of the training time": share for phase, share in shares.items()},
            **{f"{phase} ns": rank.usual[phase] for phase in shares},
        },
    )
