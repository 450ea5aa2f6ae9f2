"""A loader of which it is predicted what other settings bring: batches are large, and passing them on takes a part of the time."""

from __future__ import annotations

import sys
import time

import torch
from benchmarks.faults.parts import CLASSES, begin
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 1 << 18


class Large(Dataset[tuple[torch.Tensor, int]]):
    """Items of a megabyte."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)
        return torch.full((WIDTH,), float(index)), index % CLASSES


if __name__ == "__main__":
    begin()
    net = nn.Sequential(nn.AvgPool1d(WIDTH // 64), nn.Flatten(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    for _ in range(int(sys.argv[2])):
        for points, classes in DataLoader(Large(), batch_size=4, num_workers=int(sys.argv[1])):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points.unsqueeze(1)), classes).backward()
            optimizer.step()
