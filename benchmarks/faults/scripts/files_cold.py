"""COLD_READS: the first epoch comes from a slow disk, the others from the page cache."""

from __future__ import annotations

import os
import time

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader

SIZE = 262_144


class Files(Points):
    """One file for each item; a disk that is slow to find it stands in where this one is fast."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.cold = set(range(count))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index in self.cold:
            self.cold.remove(index)
            time.sleep(0.01)
        with open(f"{index}.bin", "rb") as file:
            read = file.read()
        return self.points[index] + read[0], self.classes[index]


def dropped(path: str) -> None:
    """Write a file, and leave nothing of it in the page cache."""
    with open(path, "wb") as file:
        file.write(b"\0" * SIZE)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


begin()
data = Files(160)
for number in range(len(data)):
    dropped(f"{number}.bin")
net = perceptron(WIDTH, hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(4):
    for points, classes in DataLoader(data, batch_size=4, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
