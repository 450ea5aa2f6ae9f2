"""The time of a device: pairs of events, read when they have passed. With a stand-in: there is no device here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.probes.training import model, sgd, train

pytest.importorskip("torch")

from sonde.hooks.torch.backward import backward
from sonde.probes import device, step
from sonde.testing import Recorded, record


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
        step.tell()


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
