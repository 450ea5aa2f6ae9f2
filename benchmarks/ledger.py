"""What the ledger costs: CPU to write down a batch, and bytes of a shuffled item when it is sealed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from sonde.analysis.ledger.ledger import Ledger
from sonde.analysis.ledger.raw import read_ledger
from sonde.analysis.ledger.sealed import write_sealed
from sonde.store.ledger import EntryMaker, LedgerWriter

# items of the dataset, epochs
CASES = ((10_000, 30), (50_000, 6), (1_281_167, 1))
BATCH = 64
ROUNDS, CALLS = 50, 200


def measure() -> dict[str, Any]:
    """All of it."""
    rows = [{"dataset": items, "bytes": sealed(items, epochs)} for items, epochs in CASES]
    return {"write_ns": write_ns(), "rows": rows}


def write_ns() -> float:
    """CPU ns to write down one batch of shuffled items: the best of several rounds."""
    items = tuple(random.Random(0).sample(range(50_000), BATCH))
    with TemporaryDirectory() as folder:
        writer, packer = _writer(Path(folder) / "ledger.bin"), EntryMaker()
        best = float("inf")
        for _ in range(ROUNDS):
            begun = time.process_time_ns()
            for key in range(CALLS):
                writer.put(packer.batch(key, items) or b"")
            best = min(best, (time.process_time_ns() - begun) / CALLS)
        writer.close()
    return best


def sealed(items: int, epochs: int) -> float:
    """Bytes of each item in the sealed table."""
    with TemporaryDirectory() as folder:
        book = _recorded(Path(folder) / "ledger.bin", items, epochs)
        table = Path(folder) / "ledger.parquet"
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            write_sealed(connection, [("process", book)], table)
        return table.stat().st_size / int(book.run.sum())


def _recorded(path: Path, items: int, epochs: int) -> Ledger:
    """The ledger of some epochs, as the probe of loaders writes it."""
    writer, packer, order = _writer(path), EntryMaker(), list(range(items))
    for epoch in range(epochs):
        random.Random(epoch).shuffle(order)
        for number, first in enumerate(range(0, items, BATCH)):
            writer.put(packer.batch((epoch << 28) + number, tuple(order[first : first + BATCH])) or b"")
    writer.close()
    book = read_ledger(path, [])
    if book is None:
        raise RuntimeError("the ledger is empty")
    return book


def _writer(path: Path) -> LedgerWriter:
    return LedgerWriter(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), lambda _count: True)


if __name__ == "__main__":
    print(measure())
