"""For all tests: their programs use one core each, and what they leave in the folder for temporary files goes in the end."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sonde import guard


def pytest_configure() -> None:
    """Get Ctrl-C back, and give property tests all the time they need.

    A shell starts what runs in its background with Ctrl-C ignored, which programs inherit: tests press it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("busy", deadline=None)  # no time on a busy host is a failure
    hypothesis.settings.load_profile("busy")


def pytest_collection_finish() -> None:
    """All that was imported and collected stays to the end: the garbage collector need not go through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def small_programs() -> Iterator[None]:
    """A program of a test is small, and others run beside it: more threads of torch would only wait for each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing to Sonde."""
    of_jobs = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DFTRACER_ENABLE")
    for name in list(os.environ):
        if name.startswith(("SONDE", "SLURM", "TORCHELASTIC")) or name in of_jobs:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def temporary_files() -> Iterator[None]:
    """torchrun leaves a folder for each of its runs, and processes that are killed leave theirs."""
    # Short, because the paths of sockets must be.
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", str(Path(folder).resolve()))  # for programs; this process keeps the folder that it knows
        yield


@pytest.fixture(scope="session", autouse=True)
def pipes_closed_once() -> Iterator[None]:
    """A loader that failed is left to the garbage collector, and closes only what is its own."""
    # torch keeps it in a cycle. The collector first calls the end of its iterator, which starts a thread to tell an idle worker
    # to end, and then that of the pipe, which Python closes without noting it. The thread would write to that number and close
    # it again, and by then it may be a pipe of the next test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "close", _close)
        patch.setattr(Connection, "__del__", _close, raising=False)
        yield


def _close(pipe: Any) -> None:
    handle, pipe._handle = pipe._handle, None  # before it is closed: another thread may come while it is
    if handle is not None:
        os.close(handle)


@pytest.fixture
def expected() -> Iterator[set[str]]:
    """Nothing of ours fails on the way, except at places that a test adds."""
    before = guard.counts()
    places: set[str] = set()
    yield places
    after = guard.counts()
    assert {place for place in after if after[place] != before.get(place)} == places
