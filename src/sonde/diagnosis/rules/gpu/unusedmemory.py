"""GPU_MEMORY_UNUSED: memory of a device is reserved and never holds a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding, rank_word
from sonde.finding import INFO, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gpu_memory_unused(facts: Facts, policy: Policy) -> Finding | None:
    """The allocator reserves much more memory on a device than tensors ever hold."""
    worst = max(facts.devices.memory, key=lambda one: one.unused, default=None)
    if worst is None or worst.unused < 1e9 * policy["gpu_memory_unused.least_gb"]:
        return None
    share = worst.unused / worst.reserved.or_zero()
    if share < policy["gpu_memory_unused.share"]:
        return None
    return finding(
        "GPU_MEMORY_UNUSED",
        INFO,
        0.7,
        f"Of {units.size(worst.reserved.value)} that {rank_word(worst.rank)} reserves on its device, {units.size(worst.unused)} "
        f"({units.share(share)}) never held a tensor: the memory is fragmented.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and avoid batches of changing sizes.",
        figures={"reserved": worst.reserved, "peak of tensors": worst.peak},
        hosts=[worst.host],
    )
