"""The setup of a training: versions, precision, threads, seed and hardware, written down once, when it begins."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from sonde import system
from sonde.events import core
from sonde.guard import guard, pass_on
from sonde.hooks.finder import import_ns
from sonde.probes import step
from sonde.store.probe import ENVIRONMENT, SETUP, STARTUP
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

LIBRARIES = (
    "torch", "torchvision", "torchaudio", "numpy", "pandas", "transformers", "accelerate", "datasets", "lightning",
    "pytorch_lightning", "timm", "peft", "keras", "jax", "ignite", "webdataset",
)  # fmt: skip
CPU_BYTES = 4096  # of /proc/cpuinfo, which has a part for each core


def install(_settings: Settings) -> Callable[[], None]:
    """Note it when training begins."""
    return step.at_begin(_note)


@guard("noting the settings of a training")
def _note() -> None:
    core.mark(ENVIRONMENT, SETUP, None, facts(), ESSENTIAL)
    core.mark(STARTUP, SETUP, None, {"age_ns": _age(), "imports": dict(import_ns)}, ESSENTIAL)


def _age() -> int | None:
    """For how long this process is there, to 10 ms; None: not known, or it is that of a notebook, which may have waited for long."""
    ticks = system.start_ticks(os.getpid())
    if ticks is None or "ipykernel" in sys.modules or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    began = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - began)


def facts() -> dict[str, Any]:
    """What this process computes with."""
    return {"versions": _versions(), "cpu": _cpu(), "torch": _torch()}


def _versions() -> dict[str, str]:
    """Of the libraries that the program has imported."""
    found = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in LIBRARIES)
    return {name: str(version) for name, version in found if version is not None}


def _cpu() -> str | None:
    try:
        fd = os.open("/proc/cpuinfo", os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(fd, CPU_BYTES).decode("utf-8", "replace")
        finally:
            os.close(fd)
    except OSError as error:
        pass_on(error)
        return None
    names = (line.partition(":")[2].strip() for line in content.splitlines() if line.startswith("model name"))
    return next(names, None)


def _torch() -> dict[str, Any]:
    """What torch computes with; asks a device for nothing unless the program has begun to use it."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "get_default_dtype"):  # it is not there, or is being imported
        return {}
    cuda = torch.cuda
    devices = [cuda.get_device_name(one) for one in range(cuda.device_count())] if cuda.is_initialized() else []
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seed": torch.initial_seed(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "devices": devices,
    }
