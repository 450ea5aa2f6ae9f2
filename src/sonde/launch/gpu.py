"""What NVIDIA's management library says of each device, where the program's environment has it. Not verified on a device."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from sonde.events import core
from sonde.guard import guard
from sonde.store.probe import GPU_ENERGY, GPU_THROTTLED, SYSTEM


class NvidiaDevices:
    """The devices of this machine; none without the package pynvml or without a driver."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] = []
        try:
            pynvml = importlib.import_module("pynvml")
        except ImportError:
            return
        with guard("querying GPUs"):
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError:  # no driver: a machine without a device
                return
            self._library = pynvml
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]

    def sample(self) -> None:
        """Record load, memory, energy, power, temperature and why its clocks are held back, of each device; the key is its number."""
        for number, handle in enumerate(self._handles):
            library = self._library
            load, memory = library.nvmlDeviceGetUtilizationRates(handle), library.nvmlDeviceGetMemoryInfo(handle)
            core.counter("gpu.load", load.gpu, SYSTEM, number)
            core.counter("gpu.memory.used", memory.used, SYSTEM, number)
            core.counter("gpu.memory.total", memory.total, SYSTEM, number)
            self._optional(GPU_ENERGY, "nvmlDeviceGetTotalEnergyConsumption", number, handle, 1e-3)
            self._optional(GPU_THROTTLED, "nvmlDeviceGetCurrentClocksThrottleReasons", number, handle)
            core.counter("gpu.power", library.nvmlDeviceGetPowerUsage(handle) / 1000, SYSTEM, number)
            core.counter(
                "gpu.temperature",
                library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
                SYSTEM,
                number,
            )

    def _optional(self, name: str, function: str, number: int, handle: Any, unit: float = 1.0) -> None:
        """Record what older devices or versions of the library cannot say: missing is not zero."""
        asked = getattr(self._library, function, None)
        if asked is not None:
            with suppress(self._library.NVMLError):
                core.counter(name, asked(handle) * unit, SYSTEM, number)
