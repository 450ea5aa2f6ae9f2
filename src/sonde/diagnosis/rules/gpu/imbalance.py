"""GPU_IMBALANCE: some devices of a host do much more than others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import enough_steps, finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gpu_imbalance(facts: Facts, policy: Policy) -> Finding | None:
    """The loads of the devices that the ranks of a host use differ widely."""
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
                f"The median load of device {high.number} of {high.host} is {high.figures['load'].or_zero():.0f} %, that of device "
                f"{low.number} {low.figures['load'].or_zero():.0f} %.",
                "Give each rank equal work: the same number and length of samples, and equal stages of a pipeline.",
                figures={"highest load %": high.figures["load"], "lowest load %": low.figures["load"]},
                hosts=[high.host],
            )
    return None
