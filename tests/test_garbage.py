"""Loaders that tests leave to the garbage collector: taking them apart does no harm to what comes after them."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

SECONDS = 240  # for anything to happen, on a busy machine


class Broken(Dataset[torch.Tensor]):
    """Has no item that can be read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        raise OSError(f"item {index} is broken")


@pytest.fixture
def collected_by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Garbage stays until the test collects it; torch does not mind more workers than cores."""
    monkeypatch.setattr(DataLoader, "check_worker_number_rationality", lambda _: None)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def feeding(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Threads that feed workers come to run when this is set: on a busy machine they come late."""
    may, feed = threading.Event(), Queue._feed  # type: ignore[attr-defined]

    def late(*args: Any) -> None:
        may.wait(SECONDS)
        feed(*args)

    may.set()
    monkeypatch.setattr(Queue, "_feed", staticmethod(late))
    return may


def is_open(descriptor: int) -> bool:
    with suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


@pytest.mark.usefixtures("collected_by_hand")
def test_a_loader_that_failed_closes_no_descriptor_that_is_not_its_own(
    tmp_path: Path, feeding: threading.Event
) -> None:
    """Also if its second worker had nothing to do, and all its workers are gone when it is collected."""
    before = set(active_children())

    def up(worker: int) -> None:
        (tmp_path / f"up{worker}").touch()

    with pytest.raises(OSError, match="is broken"):
        list(DataLoader(Broken(), batch_size=4, num_workers=2, multiprocessing_context="fork", worker_init_fn=up))
    left = set(active_children()) - before
    assert len(left) == 2
    until = time.monotonic() + SECONDS  # before it has torch's handler, SIGTERM would kill a worker
    while len(list(tmp_path.glob("up*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    for worker in left:
        worker.terminate()
        worker.join(SECONDS)
        assert worker.exitcode == 0
    feeding.clear()
    gc.collect()
    files = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(20)]
    feeding.set()
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(SECONDS)
    closed = [file for file in files if not is_open(file)]
    for file in set(files) - set(closed):
        os.close(file)
    assert closed == []
