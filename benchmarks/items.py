"""What recording adds to an item in a loader worker: CPU of the worker, with and without, in turn."""

from __future__ import annotations

import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import sonde

BATCHES = {1: 3_000, 32: 600, 256: 120}  # batch size -> batches of one round


class Clock(Dataset[int]):
    """Each item is the CPU time that its worker has used so far, in ns."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        """The reading."""
        return time.thread_time_ns()


def ends(items: list[int]) -> tuple[int, int]:
    """Of a batch only the first and the last reading, so that little else is measured."""
    return items[0], items[-1]


def per_item(size: int, batches: int) -> float:
    """CPU ns of the worker from the first item to the last, per item; the way of the batches is in it."""
    data = DataLoader(
        Clock(size * batches), batch_size=size, collate_fn=ends, num_workers=1, multiprocessing_context="fork"
    )
    readings: list[tuple[int, int]] = list(data)
    return (readings[-1][1] - readings[0][0]) / (size * batches - 1)


def recorded(size: int, batches: int) -> float:
    """The same while it is recorded."""
    with TemporaryDirectory() as folder, sonde.init(dir=folder, name="items", enabled=True):
        return per_item(size, batches)


def measure(rounds: int) -> dict[str, Any]:
    """Without, with, with, without, `rounds` times; the medians."""
    torch.set_num_threads(1)
    rows = []
    for size, batches in BATCHES.items():
        per_item(size, batches)
        bare, ours = [], []
        for _ in range(rounds):
            bare.append(per_item(size, batches))
            ours += [recorded(size, batches), recorded(size, batches)]
            bare.append(per_item(size, batches))
        added = median(ours) - median(bare)
        rows.append({"batch": size, "bare_ns": median(bare), "sonde_ns": median(ours), "added_ns": added})
    return {"rows": rows}


if __name__ == "__main__":
    for row in measure(5)["rows"]:
        print({name: round(value) for name, value in row.items()})
