"""COMPUTE_BOUND: the time goes into the model, as it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import PHASE_WORDS, enough_steps, finding
from sonde.diagnosis.speed import TRAIN
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.speed import DeviceTimes


PHASES = ("forward", "backward", "optimizer")


def compute_bound(facts: Facts, policy: Policy) -> Finding | None:
    """Most of the training time is forward, backward and optimizer."""
    if not enough_steps(facts, policy) or not facts.speed.ranks:
        return None
    if facts.speed.device is not None:
        return _on_device(facts, policy, facts.speed.device)
    known = sorted(facts.speed.ranks, key=lambda rank: sum(rank.share[phase].or_zero() for phase in PHASES))
    rank = known[(len(known) - 1) // 2]
    shares = {phase: rank.share[phase] for phase in PHASES if rank.share[phase].value is not None}
    whole = sum(share.or_zero() for share in shares.values())
    if whole < policy["compute_bound.share"]:
        return None
    shown = facts.speed.shown(*shares)
    largest = max(shares, key=lambda phase: shares[phase].or_zero())
    return finding(
        "COMPUTE_BOUND",
        INFO,
        0.9,
        f"Computation takes {units.share(shown.value)} of the step time, mostly in {PHASE_WORDS[largest]} "
        f"({units.duration(facts.speed.each(largest))} of {units.duration(facts.speed.step.mean.value if facts.speed.step else None)} on "
        "average).",
        "Nothing blocks the model. To go faster, make the model itself faster: `sonde deep` shows its layers.",
        score=min(whole, 1.0),
        figures={
            "share of the step time": shown,
            "median step ns": rank.usual[TRAIN],
            **{f"{phase}, share of the training time in a median step": share for phase, share in shares.items()},
            **{f"{phase} in a median step ns": rank.usual[phase] for phase in shares},
        },
    )


def _on_device(facts: Facts, policy: Policy, device: DeviceTimes) -> Finding | None:
    """The device decides, if it is still at work when the host has started everything."""
    if not device.share.at_least(policy["compute_bound.share"]) or not device.lags(policy["launch_bound.lag"]):
        return None
    largest = max(device.phases, key=lambda phase: device.phases[phase].or_zero())
    return finding(
        "COMPUTE_BOUND",
        INFO,
        0.8,
        f"The device computes for {units.share(min(1.0, device.share.or_zero()))} of the step time, mostly in "
        f"{PHASE_WORDS[largest]} ({units.duration(device.phases[largest].value)} of "
        f"{units.duration(facts.speed.step.mean.value if facts.speed.step else None)} on average).",
        "Nothing blocks the model. To go faster, make the model itself faster: `sonde deep` shows its layers.",
        score=min(1.0, device.share.or_zero()),
        figures={"share of the device": device.share}
        | {f"{phase} of the device ns": figure for phase, figure in device.phases.items()},
    )
