"""SLOW_ITEMS: 6 of 600 items take 0.3 s, the others nothing."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """Some files are very large."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.3 if index % 100 == 42 else 0)
        return super().__getitem__(index)


begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Files(600), batch_size=4, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
