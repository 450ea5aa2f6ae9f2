"""Names of other tools' events in our vocabulary."""

from __future__ import annotations

import re
from functools import lru_cache

from sonde.store import probe

# Categories of what ran on a device, as torch.profiler writes them.
DEVICE = frozenset(
    {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "gpu_annotation"}
)
ANNOTATION, DEVICE_ANNOTATION = "user_annotation", "gpu_user_annotation"
_STEP = re.compile(r"ProfilerStep\s*#(\d{1,9})")
_PHASES = {
    "forward": ("compute", "forward"),
    "distributeddataparallel.forward": ("compute", "forward"),
    "backward": ("compute", "backward"),
    "optimizer": ("compute", "step"),
}
UPDATE = ("compute", "step")  # what ends a step in a trace of DFTracer
_DATA = ("enumerate(dataloader)#", "dataloader", "data_load", "data loading")
_COMMUNICATION = ("nccl:", "gloo:", "mpi:", "ucc:", "c10d::")
# Not the backward pass: its kernels are launched by another thread, so its annotation on the device covers few of them.
_DEVICE_TIMES = {"forward": probe.FORWARD, "step": probe.OPTIMIZER}
_MARKED = (ANNOTATION, "cpu_op", "")


@lru_cache(maxsize=65536)
def known_as(cat: str, name: str) -> tuple[str, str]:
    """The category and name that the tables know this by; those it has if there are none."""
    if cat not in _MARKED:
        return cat, name
    plain = name.strip("# ").lower()
    if plain.startswith(_COMMUNICATION):
        return "comm", name
    if cat == "cpu_op":
        return cat, name
    if plain.startswith("optimizer.step#"):
        return "compute", "step"
    if plain.startswith(_DATA):
        return "data", name
    return _PHASES.get(plain, (cat, name))


def profiler_step(name: str) -> int | None:
    """The number of a step that torch.profiler marked."""
    found = _STEP.fullmatch(name) if name.startswith("ProfilerStep") else None
    return int(found[1]) if found else None


def device_phase(name: str) -> str | None:
    """The phase that an annotation on a device is about."""
    cat, known = known_as(ANNOTATION, name)
    return _DEVICE_TIMES.get(known) if cat == "compute" else None
