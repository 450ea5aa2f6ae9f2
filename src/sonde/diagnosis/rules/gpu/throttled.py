"""GPU_THROTTLED: the driver throttles a device because of heat or power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gpu_throttled(facts: Facts, policy: Policy) -> Finding | None:
    """The driver throttles a device: heat, hardware slowdown or power brake."""
    known = [one for one in facts.devices.used if one.figures["samples"].at_least(policy["gpu_throttled.samples"])]
    worst = max(known, key=lambda one: one.figures["throttled"].or_zero(), default=None)
    if worst is None or not worst.figures["throttled"].at_least(policy["gpu_throttled.share"]):
        return None
    slow = sum(one.figures["throttled"].at_least(policy["gpu_throttled.share"]) for one in known)
    degrees = worst.figures["temperature"].value
    heat = "" if degrees is None else f", at up to {degrees:.0f} °C"
    more = "" if slow == 1 else f" The same holds for {units.plural(slow - 1, 'other device')}."
    return finding(
        "GPU_THROTTLED",
        WARN,
        0.8,
        f"The driver throttles {worst.name} for {units.share(worst.figures['throttled'].value)} of the training{heat}.{more}",
        "Check cooling and power of the host: nvidia-smi -q -d PERFORMANCE,TEMPERATURE.",
        score=worst.figures["throttled"].value,
        figures={
            "share of the training": worst.figures["throttled"],
            "highest temperature": worst.figures["temperature"],
        },
        hosts=[worst.host],
    )
