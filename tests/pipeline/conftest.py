"""What all tests of the pipeline share: torch with one thread, traces that leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sonde import guard
from sonde.capture import tape
from sonde.hooks import patches
from sonde.pipeline import registry


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small models are faster with one thread, and other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test no trace is active, nothing is patched, and nothing of ours has failed."""
    monkeypatch.setenv("SONDE_SCRATCH", str(tmp_path_factory.mktemp("scratch")))
    failures = guard.counts()
    before = patches.describe()
    yield
    assert tape.current() is None
    assert patches.describe() == before
    failed = {place: count for place, count in guard.counts().items() if count != failures.get(place)}
    assert not failed, guard.reasons()


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a test or an example registers is gone after it."""
    before = {name: dict(kind.registered) for name, kind in registry._kinds.items()}
    yield
    for name, kind in registry._kinds.items():
        kind.registered.clear()
        kind.registered.update(before[name])
