"""Datasets and subscribers that the tests of the loader share, and that workers can import."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from sonde.hooks.torch import loader, private

read_in_c = pytest.mark.skipif(private.exchange() is None, reason="C reads the tensors of torch 2.10 and later")


class Count(Dataset[Any]):
    """Item i is the number i: what is delivered says which indices it was.

    With a `signal`, item 0 comes only well after item 6 has made that file: the other worker has handed over the batch
    before by then. The item `bad` raises.
    """

    def __init__(self, length: int, signal: Path | None = None, bad: int | None = None) -> None:
        self.length = length
        self.signal = signal
        self.bad = bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        """The number itself, or several for a list of them."""
        if self.signal is not None and index == 6:
            self.signal.touch()
        while self.signal is not None and index == 0 and not self.signal.exists():
            time.sleep(0.2)
        if index == self.bad:
            raise ValueError(f"item {index} is bad")
        return torch.tensor(index)


class Batched(Count):
    """Fetches a list of items at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The items."""
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):
    """Numbers one after the other; a worker has its own stream, which starts at 100 times its number."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker = info.id if info else 0
        for number in range(self.lengths[worker]):
            yield torch.tensor(100 * worker + number)


class Deliveries:
    """Keeps what was delivered and what is told of it."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, loader.Batch | None]] = []
        self.errors: list[tuple[str, loader.Batch | None]] = []

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The iterator is the token."""
        return args[0]

    def after(self, iterator: Any, data: Any, error: BaseException | None) -> None:
        """A batch is there, or an error."""
        if error is None:
            self.rows.append((data, loader.delivered(iterator)))
        else:
            self.errors.append((type(error).__name__, loader.delivered(iterator)))

    @property
    def batches(self) -> list[loader.Batch]:
        """What is told."""
        return [batch for _, batch in self.rows if batch is not None]


class Writing:
    """Writes down each fetch, in whatever process it is."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Which batch it is for."""
        return loader.fetching()

    def after(self, batch: loader.Batch | None, data: Any, error: BaseException | None) -> None:
        """One line each."""
        values = data.tolist() if isinstance(data, torch.Tensor) else None
        with (Path(self.folder) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([os.getpid(), batch, values, type(error).__name__ if error else None]) + "\n")


def write_fetches(folder: str) -> None:
    """Called in workers."""
    loader.fetch.subscribe(Writing(folder))


def read_fetches(folder: Path) -> list[tuple[int, loader.Batch, list[int] | None, str | None]]:
    """What was written: process, batch, values, error."""
    rows = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [(pid, _batch(batch), values, error) for pid, batch, values, error in rows]


def _batch(fields: list[Any]) -> loader.Batch:
    batch = loader.Batch(*fields)
    return batch._replace(indices=None if batch.indices is None else tuple(batch.indices))


def fail() -> None:
    """A starter that fails."""
    raise RuntimeError("ours")


def thirds(items: list[Any]) -> Any:
    """A collate function of the user."""
    return torch.stack(items) * 3
