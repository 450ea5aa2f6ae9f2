"""Numbers of a device are read when they have arrived, and never waited for. A stand-in takes the place of the device."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from sonde.probes.learning.pending import PendingNumbers  # noqa: E402


class Scalar:
    """A number on a device."""

    is_cpu = False

    def __init__(self, value: float, device: str = "cuda") -> None:
        self.device = torch.device(device)
        self.float = lambda: torch.tensor(value)

    def numel(self) -> int:
        return 1

    def item(self) -> None:
        raise AssertionError("this would wait for the device")


class Event:
    """An event that has passed when the test says so."""

    passed = False

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return Event.passed


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has a device, whose memory is that of the host."""
    empty = torch.empty_like
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **_: empty(tensor))
    monkeypatch.setattr(Event, "passed", False)


def test_numbers_of_the_host_are_there_at_once() -> None:
    """Plain ones, and those in tensors."""
    found: list[list[float]] = []
    PendingNumbers().add([1, 2.5, torch.tensor(3)], found.append)
    assert found == [[1, 2.5, 3]]


@pytest.mark.usefixtures("device")
def test_numbers_of_a_device_come_when_the_event_has_passed() -> None:
    """All of a sample in one copy, each to the one who asked, among those that were known before."""
    found: list[list[float]] = []
    results = PendingNumbers()
    one, other = Scalar(1.0), Scalar(2.0)
    results.add([7, one, torch.tensor(8)], found.append)
    results.add([other], found.append)
    results.order()
    results.collect()
    assert found == []
    Event.passed = True
    results.collect()
    assert found == [[7, 1.0, 8], [2.0]]


def test_numbers_of_other_devices_are_left_out_and_counted() -> None:
    """Nothing is known of how to read them without waiting."""
    results = PendingNumbers()
    results.add([Scalar(1.0, "mps")], lambda _: pytest.fail("it cannot be read"))
    results.order()
    results.collect()
    assert results.left_out == 1
