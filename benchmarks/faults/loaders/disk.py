"""A loader of which it is predicted what other settings bring: each item waits for a slow disk, and some for a much slower one."""

from __future__ import annotations

import sys
import time

import torch
from benchmarks.faults.parts import Points, begin, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """As if each point came from a slow disk; one of 64 takes thirty times as long."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.06 if index % 64 == 0 else 0.002)
        return super().__getitem__(index)


if __name__ == "__main__":
    begin()
    net = perceptron()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(int(sys.argv[2])):
        for points, classes in DataLoader(Files(640), batch_size=8, num_workers=int(sys.argv[1])):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
            time.sleep(0.006)  # as if a device computed
