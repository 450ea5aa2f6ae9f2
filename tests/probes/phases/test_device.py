"""The time of a device: pairs of events, read when they have passed. With a stand-in: there is no device here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.probes.training import model, sgd, train

pytest.importorskip("torch")

import torch

from sonde.analysis.run import open_run
from sonde.diagnosis.diagnose import diagnose
from sonde.hooks.torch.backward import backward
from sonde.probes import step
from sonde.probes.phases import device
from sonde.testing import FakeClock, Recorded, record


class Event:
    """Passes when the device has come to it; 2 ms from one to the next."""

    made = 0
    order = 0
    passed = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        Event.made += 1

    def record(self) -> None:
        Event.order += 1
        self.place = Event.order

    def query(self) -> bool:
        return self.place <= Event.passed

    def elapsed_time(self, other: Event) -> float:
        """In ms, as torch has it."""
        return 2.0 * (other.place - self.place)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that is in use."""
    Event.made = Event.order = Event.passed = 0
    found = SimpleNamespace(is_initialized=lambda: True, Event=Event)
    monkeypatch.setattr(device, "cuda", lambda: found)
    monkeypatch.setattr(step, "PAUSE_NS", 0)
    return found


def times(recorded: Recorded, phase: str) -> list[tuple[int, float]]:
    """Step and nanoseconds of each counter of this phase."""
    return [(event["step"], event["value"]) for event in recorded.named(f"device.{phase}")]


def trained(count: int) -> None:
    """So many steps; the device is told of each end."""
    net = model()
    optimizer = sgd(net)
    for _ in range(count):
        train(net, optimizer, 1)
        step.notify()


@pytest.mark.usefixtures("cuda")
def test_each_phase_has_its_time_with_the_step_it_belongs_to() -> None:
    """From the step on behind the one that found the device."""
    Event.passed = 10**6
    with record() as recorded:
        trained(4)
    assert [number for number, _ in times(recorded, "backward")] == [1, 2, 3]
    assert {value for _, value in times(recorded, "backward")} == {2e6}
    assert times(recorded, "forward")
    assert times(recorded, "optimizer")
    assert Event.made <= 2 * 5  # those of a step are used again in the next one


@pytest.mark.usefixtures("cuda")
def test_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not passed at the end is not written, and what is too much is left out and counted."""
    monkeypatch.setattr(device, "MOST", 4)
    with record() as recorded:
        trained(4)
    assert not times(recorded, "backward")
    assert recorded.named("device.left_out")[0]["value"] > 0


def test_a_device_that_fails_ends_the_probe_and_not_the_training(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mark says so."""

    def fails(**_: Any) -> Any:
        raise RuntimeError("no events here")

    monkeypatch.setattr(cuda, "Event", fails)
    with record() as recorded:
        trained(3)
    assert [event["cat"] for event in recorded.named("device")] == ["probe.off"]
    assert len(recorded.named("backward")) == 3
    assert "no events here" in caplog.text


def test_without_a_device_nothing_is_subscribed() -> None:
    """The program pays nothing for it."""
    with record() as recorded:
        trained(3)
        assert not backward.subscribers
    assert not times(recorded, "backward")


class Clocked(Event):
    """An event of a stream that has so many ms of work between two events, and begins when the host has got there."""

    clock = FakeClock()
    work_ms = 0.0
    now_ns = 0
    begun = False

    def record(self) -> None:
        """The first of a pair begins as soon as the stream and the host are there; the second comes after the work."""
        super().record()
        work = Clocked.work_ms * 1e6 if Clocked.begun else 0
        Clocked.now_ns = max(Clocked.now_ns + int(work), Clocked.clock())
        Clocked.begun = not Clocked.begun
        self.at = Clocked.now_ns

    def elapsed_time(self, other: Event) -> float:
        """In ms."""
        assert isinstance(other, Clocked)
        return (other.at - self.at) / 1e6


class Slow(torch.nn.Linear):
    """A model whose host takes its time."""

    pause = 0.0

    def forward(self, batch: Any) -> Any:
        """The same, later."""
        Clocked.clock.advance(seconds=self.pause)
        return super().forward(batch)


class Timed(torch.optim.SGD):
    """An update that takes the host a microsecond: no two things happen at one time."""

    def step(self, closure: Any = None) -> Any:
        """The same, later."""
        Clocked.clock.advance(1000)
        return super().step(closure)


@pytest.mark.parametrize(
    ("work_ms", "launch", "data", "kind"),
    [(0.01, 0.0, 0.03, "INPUT_BOUND"), (20.0, 0.0, 0.0, "COMPUTE_BOUND"), (0.01, 0.03, 0.0, "LAUNCH_BOUND")],
)
def test_what_a_device_waits_for_is_told(
    tmp_path: Path, cuda: Any, work_ms: float, launch: float, data: float, kind: str
) -> None:
    """For data, for nothing, or for the host to start its work."""
    Clocked.now_ns, Clocked.begun, Clocked.work_ms, Event.passed = 0, False, work_ms, 10**6
    cuda.Event = Clocked
    net = Slow(8, 2)
    net.pause = launch or 0.0001
    optimizer = Timed(net.parameters(), lr=0.1)
    with FakeClock() as clock, record(dir=str(tmp_path)) as recorded:
        Clocked.clock = clock
        for _ in range(20):
            clock.advance(seconds=data)
            net(torch.zeros(4, 8)).sum().backward()
            optimizer.step()
            step.notify()
            clock.advance(max(0, Clocked.now_ns - clock()))  # as `.item()` waits for the device
    with open_run(recorded.path) as run:
        found = diagnose(run)
    assert found.verdict.kind == kind, found.verdict
