"""Rules about devices, over what NVML and the allocator say of a stand-in: there is no device here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.building import diagnosed, kinds, launcher, phases, processes, with_records
from tests.diagnosis.catalogue import GB, RUNS, on_devices

from sonde.store import probe
from sonde.store.record import COUNTER
from sonde.testing import BuiltRecord

KINDS = {kind for kind in RUNS if kind.startswith("GPU_")}


def found(folder: Path, *args: object, **kwargs: float) -> set[str]:
    """What is said about devices."""
    return KINDS & set(kinds(diagnosed(folder, on_devices(*args, **kwargs))))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_fault_of_a_device_is_found_alone(tmp_path: Path, kind: str) -> None:
    """No other rule about devices takes it for its own."""
    assert KINDS & set(kinds(diagnosed(tmp_path, RUNS[kind]()))) == {kind}


def test_devices_that_work_evenly_are_healthy(tmp_path: Path) -> None:
    """Also with a power cap, which is common at full load, and idle devices of the host."""
    assert found(tmp_path, [95.0, 88.0], throttled=0x4) == set()


def test_a_difference_needs_devices_of_this_run_alone(tmp_path: Path) -> None:
    """Two devices are busy and the run has one rank: the other one is somebody else's."""
    trainer, *_, looks = on_devices([95.0, 30.0])
    assert "GPU_IMBALANCE" not in kinds(diagnosed(tmp_path, [trainer, looks]))


def test_devices_of_others_say_nothing_about_a_run_without_one(tmp_path: Path) -> None:
    """It trains on the host's cores."""
    looks = [
        BuiltRecord("gpu.load", probe.SYSTEM, kind=COUNTER, start=one.start, key=0, value=5.0)
        for one in processes()[0].records
        if one.name == probe.FORWARD
    ]
    assert not KINDS & set(kinds(diagnosed(tmp_path, [*processes(), launcher(*looks)])))


def test_waiting_for_data_explains_an_idle_device(tmp_path: Path) -> None:
    """The cause comes first."""
    _, looks = on_devices([10.0])
    (trainer,) = processes(phases=phases(input_wait=40))
    memory = [
        BuiltRecord("device.reserved", probe.MEMORY, kind=COUNTER, start=one.start, key=1000, value=GB)
        for one in trainer.records
        if one.name == probe.FORWARD
    ]
    report = diagnosed(tmp_path, [with_records(trainer, *memory), looks])
    assert kinds(report)[:2] == ["INPUT_BOUND", "GPU_UNDERUSED"]


def test_memory_that_is_mostly_held_or_small_is_no_finding(tmp_path: Path) -> None:
    """A third of a gigabyte is not worth a word."""
    assert found(tmp_path, [95.0], reserved=1.0, peak=0.5) == set()
