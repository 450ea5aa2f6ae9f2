"""GPU_IMBALANCE: some devices of a host do much more than others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gpu_imbalance(facts: Facts, policy: Policy) -> Finding | None:
    """The ranks of a host load their devices very unequally."""
    if not enough_steps(facts, policy):
        return None
    for devices in facts.devices.by_host():
        known = [one for one in devices if one.figures["samples"].at_least(policy["gpu_imbalance.samples"])]
        if len(known) < 2:
            continue
        low, *_, high = sorted(known, key=lambda one: one.figures["load"].or_zero())
        apart = high.figures["load"].or_zero() - low.figures["load"].or_zero()
        if apart >= policy["gpu_imbalance.points"]:
            return finding(
                "GPU_IMBALANCE",
                WARN,
                0.6,
                f"On {high.host}, device {high.number} has a median load of {high.figures['load'].or_zero():.0f} %, device "
                f"{low.number} one of {low.figures['load'].or_zero():.0f} %.",
                "Give each rank equal work: the same number and length of samples, and equal stages of a pipeline.",
                figures={"highest load %": high.figures["load"], "lowest load %": low.figures["load"]},
                hosts=[high.host],
            )
    return None
