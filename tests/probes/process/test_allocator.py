"""The most memory of a device in each step, and what the program sees of its own. With a stand-in: there is no device here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch as real_torch
from tests.probes.phases.test_device import Event
from tests.probes.training import loss_of, model, sgd

from sonde import hooks
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.hooks.points import quiet
from sonde.probes import step
from sonde.probes.phases import device
from sonde.probes.process import allocator
from sonde.testing import Recorded, record

torch: Any = real_torch
GROUPS = ("allocated_bytes", "reserved_bytes")
ACCELERATOR = hasattr(torch.accelerator, "memory")  # torch 2.9 and later
POOLS = torch.__version__ >= "2.13"  # torch 2.10 has no statistics of private pools
POOL = (0, 1)  # the name of a private pool


class Memory:
    """The allocator of one device, with the statistics that torch has of it."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def hold(self, size: int) -> None:
        """The program holds so much now."""
        self.now = size
        self.most = max(self.most, size)

    def stats(self) -> dict[object, Any]:
        """Made anew for each who asks, as torch does."""

        def leaf() -> dict[str, int]:
            return {"current": self.now, "peak": self.most, "allocated": 7, "freed": 3}

        whole: dict[object, Any] = {group: {"all": leaf(), "large_pool": leaf()} for group in GROUPS}
        if POOLS:
            whole["by_pool"] = {POOL: {"all": leaf()}}
        return {**whole, "num_ooms": 0}


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Memory]]:
    """Two devices that are in use, below the real functions of torch."""
    Event.made = Event.order = Event.passed = 0
    made = [Memory(), Memory()]

    def reset(number: int) -> None:
        made[number].most = made[number].now

    for name, function in {
        "_cuda_memoryStats": lambda number: made[number].stats(),
        "_cuda_resetPeakMemoryStats": reset,
        "_accelerator_getDeviceStats": lambda number: made[number].stats(),
        "_accelerator_resetPeakStats": reset,
        "_accelerator_isAllocatorInitialized": lambda: True,
    }.items():
        monkeypatch.setattr(torch._C, name, function, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(made))
    if ACCELERATOR:
        monkeypatch.setattr(torch.accelerator.memory, "_get_device_index", lambda number, optional: number)
    found = SimpleNamespace(is_initialized=lambda: True, Event=Event)
    monkeypatch.setattr(device, "cuda", lambda: found)
    yield made
    for number in range(2):
        torch.cuda.reset_peak_memory_stats(number)  # so that the next test finds nothing kept
    assert hooks.describe() == []


def trained(memory: Memory, sizes: list[int]) -> None:
    """A step for each size, which is held in the middle of it; 10 bytes always."""
    net = model()
    optimizer = sgd(net)
    memory.hold(10)
    for size in sizes:
        loss = loss_of(net)
        memory.hold(size)
        loss.backward()
        memory.hold(10)
        optimizer.step()
        optimizer.zero_grad()


def peaks(recorded: Recorded) -> list[tuple[int, int, float]]:
    """Device, step and bytes of each look."""
    return [(event["key"], event["step"], event["value"]) for event in recorded.named("device_peak")]


def test_each_step_has_its_own_peak(devices: list[Memory]) -> None:
    """From the step on behind the one that found the device; a device that is not used has none."""
    with record() as recorded:
        trained(devices[0], [900, 500, 300, 700])
    assert peaks(recorded) == [(0, 1, 500), (0, 2, 300), (0, 3, 700)]


def test_the_program_sees_the_peak_of_all_steps(devices: list[Memory]) -> None:
    """By every way that torch has to it, also after the end of the recording; what is no peak is as it was."""
    with record():
        trained(devices[0], [900, 500, 300])
        before = devices[0].most
        seen = [torch.cuda.max_memory_allocated(0), torch.cuda.max_memory_reserved(0)]
        seen += [torch.accelerator.max_memory_allocated(0)] if ACCELERATOR else []
        seen += [torch.cuda.memory_stats(0)["by_pool.0_1.all.peak"]] if POOLS else []
        plain = torch.cuda.memory_stats(0)
        kept = ("allocated_bytes.all.current", "allocated_bytes.all.allocated", "num_ooms")
        assert [plain[name] for name in kept] == [10, 7, 0]
        assert torch.cuda.memory_allocated(0) == 10
    assert before < 900
    assert set(seen) == {900}
    assert torch.cuda.max_memory_allocated(0) == 900
    assert torch.cuda.max_memory_allocated(1) == 0


@pytest.mark.parametrize("way", ["cuda", "accelerator"] if ACCELERATOR else ["cuda"])
def test_a_program_that_resets_its_peaks_begins_anew(devices: list[Memory], way: str) -> None:
    """With what it holds at that moment, as without us."""
    reset = torch.cuda.reset_peak_memory_stats if way == "cuda" else torch.accelerator.reset_peak_memory_stats
    with record():
        trained(devices[0], [900, 500])
        reset(0)
        assert torch.cuda.max_memory_allocated(0) == 10
        trained(devices[0], [400])
        assert torch.cuda.max_memory_allocated(0) == 400


def test_nothing_is_patched_once_the_program_has_reset_its_peaks(devices: list[Memory]) -> None:
    """Until then the patch stays after the recording: without it the peaks before would be lost."""
    with record():
        trained(devices[0], [900, 500])
    assert any("peaks" in one for one in hooks.describe())
    torch.cuda.reset_peak_memory_stats(0)
    assert hooks.describe() == []


def test_a_second_recording_goes_on_with_the_same_peaks(devices: list[Memory]) -> None:
    """The program does not notice where one ends."""
    for sizes in ([900, 500], [300, 200]):
        with record():
            trained(devices[0], sizes)
    assert torch.cuda.max_memory_allocated(0) == 900


def test_a_device_that_comes_into_use_later_is_found(devices: list[Memory], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones are in use is asked now and then."""
    monkeypatch.setattr(allocator, "OFTEN", 2)
    with record() as recorded:
        trained(devices[0], [500, 500])
        devices[1].hold(70)
        trained(devices[0], [500] * 4)
    assert {number for number, _, _ in peaks(recorded)} == {0, 1}


def test_steps_that_are_not_chosen_leave_no_peak_to_others(devices: list[Memory]) -> None:
    """Their peaks are reset all the same."""
    with record(steps="2:4") as recorded:
        trained(devices[0], [500, 800, 300, 200, 900])
    assert peaks(recorded) == [(0, 2, 300), (0, 3, 200)]
    assert torch.cuda.max_memory_allocated(0) == 900


def test_an_allocator_that_fails_ends_the_looks_and_not_the_timing(
    devices: list[Memory], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mark says so; the program is not disturbed."""

    def fails(*_: object) -> None:
        raise KeyError("not there")

    Event.passed = 10**6
    with record() as recorded:
        trained(devices[0], [500, 500])
        monkeypatch.setattr(allocator, "_take", fails)
        trained(devices[0], [500, 500])
        step.notify()
    assert [event["cat"] for event in recorded.named("allocator")] == ["probe.off"]
    assert len(recorded.named("device.backward")) == 3
    assert torch.cuda.max_memory_allocated(0) == 500
    assert "not there" in caplog.text


def test_the_samples_in_between_show_what_the_program_sees(devices: list[Memory]) -> None:
    """Also where they are taken while nothing is told."""
    with record():
        trained(devices[0], [900, 500])
        with quiet():
            cuda = SimpleNamespace(current_device=lambda: 0, max_memory_allocated=lambda: devices[0].most)
            assert allocator.highest(cuda) == 900


@pytest.mark.parametrize("sealed", [False, True])
def test_the_tables_have_peaks_and_times_of_the_device(devices: list[Memory], tmp_path: Path, sealed: bool) -> None:
    """In the row of the step that they belong to, of a raw run and of a sealed one; null where nothing is known."""
    Event.passed = 10**6
    with record(dir=tmp_path) as recorded:
        trained(devices[0], [900, 500, 300])
        step.notify()
    if sealed:
        seal(recorded.path)
    with open_run(recorded.path) as run:
        assert run.sql("SELECT step, device_peak_bytes FROM steps ORDER BY step").fetchall() == [
            (0, None), (1, 500), (2, 300),
        ]  # fmt: skip
        found = run.sql("SELECT phase, device_ns FROM phases WHERE step = 2").fetchall()
    assert dict(found) | {"forward": 4_000_000, "backward": 2_000_000, "optimizer": 2_000_000} == dict(found)
    assert {ns for phase, ns in found if phase not in ("forward", "backward", "optimizer")} == {None}


def test_without_a_device_the_tables_have_nulls(tmp_path: Path) -> None:
    """Never 0, and nothing is patched."""
    with record(dir=tmp_path) as recorded:
        trained(Memory(), [1, 2])
        assert not any("peaks" in one for one in hooks.describe())
    with open_run(recorded.path) as run:
        assert run.sql("SELECT DISTINCT device_peak_bytes FROM steps").fetchall() == [(None,)]
        assert run.sql("SELECT DISTINCT device_ns FROM phases").fetchall() == [(None,)]
