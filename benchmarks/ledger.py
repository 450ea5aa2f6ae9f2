"""What the ledger costs: CPU to write down a batch and to make an order again, and bytes of an item when it is sealed.

The orders are those of samplers of torch, in a loader, with what the probe notes of how they were made.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    WeightedRandomSampler,
    random_split,
)

from sonde.analysis import shuffle
from sonde.analysis.ledger import Book, read_book, write_sealed
from sonde.hooks.torch import order
from sonde.store.ledger import SEEDED, Packer, Recipe, Writer, pack_recipe

LARGE = 1_281_167
# sampler, items of the dataset, epochs
CASES = (
    ("shuffled", 10_000, 30),
    ("shuffled", 50_000, 6),
    ("shuffled", LARGE, 1),
    ("shuffled, own generator", 50_000, 6),
    ("distributed, rank 1 of 8", LARGE, 3),
    ("subset, shuffled", 300_000, 3),
    ("drawn with replacement", LARGE, 1),
    ("drawn with replacement, own generator", LARGE, 1),
    ("weighted, 10 classes", 10_000, 30),
    ("weighted, 10 classes", 50_000, 6),
    ("weighted, 1,000 classes", LARGE, 1),
    ("weighted, all different", 50_000, 6),
    ("weighted, all different", LARGE, 1),
    ("weighted, 50,000 draws", LARGE, 1),
    ("weighted, heavy tail", LARGE, 1),
)
BATCH = 64
ROUNDS, CALLS = 50, 200


class Numbers(Dataset[int]):
    """Item i is the number i."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitems__(self, indices: list[int]) -> list[int]:
        """As they are."""
        return indices


def measure() -> dict[str, Any]:
    """All of it."""
    rows = [
        {"sampler": sampler, "dataset": items, "bytes": sealed(sampler, items, epochs)}
        for sampler, items, epochs in CASES
    ]
    return {"write_ns": write_ns(), "order_s": order_s(), "rows": rows}


def write_ns() -> float:
    """CPU ns to write down one batch of shuffled items: the best of several rounds."""
    items = tuple(random.Random(0).sample(range(50_000), BATCH))
    with TemporaryDirectory() as folder:
        writer, packer = _writer(Path(folder) / "ledger.bin"), Packer()
        best = float("inf")
        for _ in range(ROUNDS):
            begun = time.process_time_ns()
            for key in range(CALLS):
                writer.put(packer.batch(key, items) or b"")
            best = min(best, (time.process_time_ns() - begun) / CALLS)
        writer.close()
    return best


def order_s() -> float:
    """CPU seconds to make the order of a large dataset again."""
    begun = time.process_time()
    shuffle.make(Recipe(SEEDED, LARGE, LARGE, seed=1))
    return time.process_time() - begun


def sealed(sampler: str, items: int, epochs: int) -> float:
    """Bytes of each item in the sealed table."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        data = random_split(Numbers(2 * items), [items, items])[0] if "subset" in sampler else Numbers(items)
        book = _recorded(Path(folder) / "ledger.bin", data, _sampler(sampler, data), epochs)
        table = Path(folder) / "ledger.parquet"
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            write_sealed(connection, [("process", book)], table)
        return table.stat().st_size / int(book.run.sum())


def _sampler(name: str, data: Any) -> Any:
    if name.startswith("weighted"):
        return WeightedRandomSampler(_weights(name, len(data)), 50_000 if "draws" in name else len(data))
    if name.startswith("distributed"):
        return DistributedSampler(data, 8, 1)
    return RandomSampler(data, "drawn" in name, generator=torch.Generator() if "generator" in name else None)


def _weights(name: str, items: int) -> Any:
    """Each another one, alike or of a few items most of the sum, or one of those of so many classes."""
    if "tail" in name:
        return 1 / (1 + torch.randperm(items, dtype=torch.double))
    if "classes" not in name:
        return torch.rand(items, dtype=torch.double)
    classes = int(name.split()[1].replace(",", ""))
    return torch.rand(classes, dtype=torch.double)[torch.randint(classes, (items,))]


def _recorded(path: Path, data: Dataset[int], sampler: Any, epochs: int) -> Book:
    """The ledger of some epochs, as the probe of loaders writes it."""
    writer, packer = _writer(path), Packer()
    loader = DataLoader(data, BATCH, sampler=sampler, collate_fn=list)
    for epoch in range(epochs):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        _note(writer, epoch, order.stated(loader))
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            writer.put(packer.batch((epoch << 28) + number, tuple(batch)) or b"")
            if not number:
                _note(writer, epoch, order.seeded(iterator))
    writer.close()
    book = read_book(path, [])
    if book is None:
        raise RuntimeError("the ledger is empty")
    return book


def _note(writer: Writer, epoch: int, recipe: Recipe | None) -> None:
    if recipe is not None:
        writer.put(pack_recipe(epoch << 28, recipe), 0)


def _writer(path: Path) -> Writer:
    return Writer(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), lambda _count: True)


if __name__ == "__main__":
    print(measure())
