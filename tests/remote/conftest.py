"""Stores for these tests: a folder, and one in memory that fails as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from tests.remote.hosts import FaultyStore

from sonde.remote import storage


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A folder of runs at a URL."""
    return f"file://{tmp_path}/bucket/runs"


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FaultyStore]]:
    """A store that fails as it is told; nothing is waited for before it is tried again."""
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0))
    FaultyStore.store.clear()
    FaultyStore.pseudo_dirs[:] = [""]
    yield FaultyStore
    FaultyStore.fault = staticmethod(lambda operation, path: None)
    FaultyStore.store.clear()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of runs go to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"
