"""LAUNCH_BOUND: a device waits for the host to give it work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def launch_bound(facts: Facts, policy: Policy) -> Finding | None:
    """The device finishes each phase as soon as the host has launched it, and launching takes most of the step."""
    device = facts.speed.device
    if device is None or not enough_steps(facts, policy) or device.lags(policy["launch_bound.lag"]):
        return None
    share = facts.speed.shown(*device.phases)
    if not share.at_least(policy["launch_bound.share"]):
        return None
    return finding(
        "LAUNCH_BOUND",
        INFO,
        0.6,
        f"The device waits for the host. Launching its work takes {units.duration(device.host_ns)} of a step "
        f"({units.share(share.value)} of the step time); the work itself takes {units.duration(device.all_ns)}.",
        "Give the device more work per call: larger batches, torch.compile, CUDA graphs, fused optimizers.",
        score=share.value,
        figures={"share of the step time": share, "share of the device": device.share}
        | {f"{phase} of the device ns": figure for phase, figure in device.phases.items()},
    )
