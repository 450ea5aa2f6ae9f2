"""What a training was made with, as it is recorded when training begins."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.probes.training import model, sgd, train  # noqa: E402

from sonde.testing import record  # noqa: E402


def test_versions_precision_threads_and_seed_are_recorded_once(expected: set[str]) -> None:
    """At the first event of training."""
    with record() as recorded:
        torch.manual_seed(7)
        net = model()  # sets another seed
        train(net, sgd(net), 3)
    (mark,) = recorded.named("environment")
    facts = mark["args"]
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["torch"]["dtype"] == "float32"
    assert facts["torch"]["seed"] == 0
    assert facts["torch"]["threads"] == torch.get_num_threads()


def test_a_program_that_does_not_train_has_none(expected: set[str]) -> None:
    """Nothing is asked of libraries."""
    with record() as recorded:
        torch.ones(3)
    assert recorded.named("environment") == []


def test_how_long_the_process_was_there_is_recorded_once(expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel knows it: a test runs for longer than 10 ms, and began after the machine."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # that of another test
    with record() as recorded:
        net = model()
        train(net, sgd(net), 3)
    (mark,) = recorded.named("startup")
    alive = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert 10_000_000 < mark["args"]["age_ns"] < alive
    assert isinstance(mark["args"]["imports"], dict)


def test_the_age_of_a_notebook_is_not_told(expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have waited for hours."""
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with record() as recorded:
        net = model()
        train(net, sgd(net), 3)
    assert recorded.named("startup")[0]["args"]["age_ns"] is None
