"""GPU_UNDERUSED: the devices have a low load while the run trains."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gpu_underused(facts: Facts, policy: Policy) -> Finding | None:
    """Most devices of this run have a low load while it trains."""
    known = [one for one in facts.devices.used if one.figures["samples"].at_least(policy["gpu_underused.samples"])]
    if not known or not enough_steps(facts, policy):
        return None
    load = median(one.figures["load"].or_zero() for one in known)
    if load >= policy["gpu_underused.load"]:
        return None
    worst = min(known, key=lambda one: one.figures["load"].or_zero())
    return finding(
        "GPU_UNDERUSED",
        WARN,
        0.6,
        f"The median load of {units.plural(len(known), 'device')} is {load:.0f} % while the run trains; {worst.name} has "
        f"{worst.figures['load'].or_zero():.0f} %.",
        "Find what the devices wait for: input wait, copies and small kernels. Then try larger batches.",
        figures={"load %": worst.figures["load"], "samples": worst.figures["samples"]},
        hosts=sorted({one.host for one in known}),
    )
