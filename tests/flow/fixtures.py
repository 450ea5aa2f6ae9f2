"""What all tests of traces share: nothing of a trace may be left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from sonde import guard
from sonde.capture import tape
from sonde.capture.traceable import Switch
from sonde.hooks import patches


@pytest.fixture
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test no trace is active, nothing is patched, and nothing of ours has failed."""
    monkeypatch.setenv("SONDE_SCRATCH", str(tmp_path_factory.mktemp("scratch")))
    failures = guard.counts()
    before = patches.describe()
    yield
    assert tape.current() is None
    assert not Switch.on
    assert patches.describe() == before
    failed = {place: count for place, count in guard.counts().items() if count != failures.get(place)}
    assert not failed, guard.reasons()


@pytest.fixture
def few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch warns where there are more workers than cores; this is no test of that."""
    loaders = sys.modules["torch.utils.data"].DataLoader
    monkeypatch.setattr(loaders, "check_worker_number_rationality", lambda _: None)


@pytest.fixture
def watch_ended() -> Iterator[None]:
    """A test begins with the same random numbers, and ends with no failure that was swallowed and no watch that still runs."""
    import torch

    from sonde.nonfinite.watch import NonFiniteWatch

    before = guard.counts()
    torch.manual_seed(0)
    yield
    NonFiniteWatch().close()
    assert guard.counts() == before
