"""Numbers of devices, from a stand-in for NVIDIA's library: there is no device to ask."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from sonde import testing
from sonde.launch.gpu import NvidiaDevices


class Refused(Exception):
    """What the library raises."""


def _energy(number: int) -> int:
    """Millijoules; the second device is too old to say."""
    if number:
        raise Refused
    return 7_000


def library(devices: int | None) -> ModuleType:
    """The library on a machine with so many devices; None: without a driver."""
    module = ModuleType("pynvml")

    def begin() -> None:
        if devices is None:
            raise Refused

    functions = {
        "NVMLError": Refused,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": begin,
        "nvmlDeviceGetCount": lambda: devices,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetUtilizationRates": lambda number: SimpleNamespace(gpu=10 * number),
        "nvmlDeviceGetMemoryInfo": lambda number: SimpleNamespace(used=5, total=9),
        "nvmlDeviceGetPowerUsage": lambda number: 250_000,
        "nvmlDeviceGetTotalEnergyConsumption": _energy,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda number: 0x40,
        "nvmlDeviceGetTemperature": lambda number, sensor: 60,
    }
    module.__dict__.update(functions)
    return module


def test_each_device_is_recorded_under_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load, memory, power in watt, temperature."""
    monkeypatch.setitem(sys.modules, "pynvml", library(2))
    with testing.record() as recorded:
        NvidiaDevices().sample()
    assert {(event["name"], event["key"]): event["value"] for event in recorded.events} == {
        (f"gpu.{name}", number): value
        for number in (0, 1)
        for name, value in (
            ("load", 10 * number),
            ("memory.used", 5),
            ("memory.total", 9),
            ("power", 250),
            ("throttled", 0x40),
            ("temperature", 60),
        )
    } | {("gpu.energy", 0): 7}


@pytest.mark.parametrize("found", [library(None), None], ids=["no driver", "no library"])
def test_a_machine_without_devices_records_none(monkeypatch: pytest.MonkeyPatch, found: ModuleType | None) -> None:
    """And says nothing."""
    monkeypatch.setitem(sys.modules, "pynvml", found)
    with testing.record() as recorded:
        NvidiaDevices().sample()
    assert recorded.events == []
