"""What the ledger costs: CPU to write a batch down, and bytes of an item when the run is sealed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from sonde.analysis.ledger import read_book, write_sealed
from sonde.store.ledger import Packer, Writer

DATASETS = {10_000: 2, 50_000: 6, 1_281_167: 1}  # items -> epochs
BATCH = 64
ROUNDS, CALLS = 50, 200


def measure() -> dict[str, Any]:
    """Both."""
    return {"write_ns": write_ns(), "rows": [{"dataset": items, "bytes": sealed(items)} for items in DATASETS]}


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


def sealed(items: int) -> float:
    """Bytes of each item of a shuffled dataset in the sealed table."""
    chance = random.Random(0)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.bin"
        writer, packer = _writer(path), Packer()
        for epoch in range(DATASETS[items]):
            order = chance.sample(range(items), items)
            for number in range(0, items, BATCH):
                entry = packer.batch((epoch << 28) + number // BATCH, tuple(order[number : number + BATCH]))
                writer.put(entry or b"")
        writer.close()
        book = read_book(path, [])
        if book is None:
            raise RuntimeError("the ledger is empty")
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            write_sealed(connection, [("process", book)], Path(folder) / "ledger.parquet")
        return (Path(folder) / "ledger.parquet").stat().st_size / (items * DATASETS[items])


def _writer(path: Path) -> Writer:
    return Writer(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), lambda _count: True)


if __name__ == "__main__":
    print(measure())
