"""What recording adds to a step of training that takes its batch from a loader, by how that makes its batches: ABBA order, CPU time.

Each loader is measured in a process of its own: python -m benchmarks.feeding LOADER ROUNDS. Nothing is loaded: the items are there
already, so that what is seen is the loader.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from benchmarks.step import MODELS, measure_each, pairs, sonde

SIZE, WIDTH = 32, 64
ROUND = 1_000_000  # batches of one iteration of a loader: it ends only once in a while


class Ready(Dataset[Any]):
    """Every item is this one: with a batch, what a loader gives that makes none itself."""

    def __init__(self, one: Any, length: int = ROUND) -> None:
        self.one = one
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, _index: int) -> Any:
        """The item."""
        return self.one


class Together(Ready):
    """Makes a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The items."""
        return [self.one] * len(indices)


class Flowing(IterableDataset[Any]):
    """The same without end."""

    def __init__(self, one: Any) -> None:
        self.one = one

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.one


def _item() -> tuple[Any, int]:
    return torch.randn(WIDTH), 0


def _batch() -> tuple[Any, Any]:
    return torch.randn(SIZE, WIDTH), torch.zeros(SIZE, dtype=torch.long)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "32 items": lambda: DataLoader(Ready(_item(), SIZE * ROUND), batch_size=SIZE),
    "32 items at once": lambda: DataLoader(Together(_item(), SIZE * ROUND), batch_size=SIZE),
    "32 items of a stream": lambda: DataLoader(Flowing(_item()), batch_size=SIZE),
    "ready batches": lambda: DataLoader(Ready(_batch()), batch_size=None),
    "ready batches of a stream": lambda: DataLoader(Flowing(_batch()), batch_size=None),
}


class Fed:
    """The step, after a batch has come from a loader."""

    def __init__(self, step: Callable[[], None], loader: DataLoader[Any]) -> None:
        self.step = step
        self.loader = loader
        self.begin()

    def begin(self) -> None:
        """Begin an iteration of the loader: one that was under way when the recording began is not known to it."""
        self.batches = iter(self.loader)

    def __call__(self) -> None:
        next(self.batches)
        self.step()


def run(name: str, rounds: int) -> dict[str, Any]:
    """One loader, in this process."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        step = Fed(MODELS["MLP"](torch), LOADERS[name]())
        for _ in range(50):
            step()
        subject = sonde(step, folder)
        subject.on()
        step.begin()
        subject.off()
        found = pairs(subject, step, rounds)
        sys.modules["sonde.session"].finish()
    return {"MLP": found}


def measure(rounds: int) -> dict[str, Any]:
    """All loaders; what recording adds to the step of an MLP with each."""
    return {name: found["MLP"] for name, found in measure_each("benchmarks.feeding", LOADERS, rounds).items()}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))), flush=True)
    os._exit(0)
