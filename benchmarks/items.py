"""What recording adds to an item in a loader worker: CPU of the worker, with and without, in turn.

What else the machine does only ever adds to a time, and on a shared one in spells longer than a round. So rounds are not judged one
by one: of all stretches of about a thousand items, of all rounds, the mean of the fastest tenth is compared. A stretch is long
enough to hold what recording does now and then (a thousand items are several writes into the file), so nothing is left out
by looking at the fastest; what is left out is the machine. Medians of whole rounds were off by 30 % on two crowded cores.
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import sonde

STRETCH = 1_024  # items
BATCHES = {1: 4_097, 32: 641, 256: 121}  # batch size -> batches of one round


class Clock(Dataset[int]):
    """Each item is the CPU time that its worker has used so far, in ns."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        """The reading."""
        return time.thread_time_ns()


def first(items: list[int]) -> int:
    """Of a batch only the first reading, so that little else is measured."""
    return items[0]


def per_item(size: int, batches: int) -> list[float]:
    """CPU ns of the worker per item, of each stretch; the way of the batches is in it."""
    data = DataLoader(
        Clock(size * batches), batch_size=size, collate_fn=first, num_workers=1, multiprocessing_context="fork"
    )
    stretch = STRETCH // size
    return [(end - start) / STRETCH for start, end in pairwise(list(data)[::stretch])]


def recorded(size: int, batches: int) -> list[float]:
    """The same while it is recorded."""
    with TemporaryDirectory() as folder, sonde.init(dir=folder, name="items", enabled=True):
        return per_item(size, batches)


def measure(rounds: int) -> dict[str, Any]:
    """Without, with, with, without, `rounds` times."""
    torch.set_num_threads(1)
    rows = []
    for size, batches in BATCHES.items():
        per_item(size, batches)
        bare, ours = [], []
        for _ in range(rounds):
            bare += per_item(size, batches)
            ours += recorded(size, batches)
            ours += recorded(size, batches)
            bare += per_item(size, batches)
        rows.append({"batch": size, "bare_ns": floor(bare), "sonde_ns": floor(ours)})
        rows[-1]["added_ns"] = rows[-1]["sonde_ns"] - rows[-1]["bare_ns"]
    return {"rows": rows}


def floor(stretches: list[float]) -> float:
    """The mean of the fastest tenth."""
    return mean(sorted(stretches)[: max(1, len(stretches) // 10)])


if __name__ == "__main__":
    for row in measure(5)["rows"]:
        print({name: round(value) for name, value in row.items()})
