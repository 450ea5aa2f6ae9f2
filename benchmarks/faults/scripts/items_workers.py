"""SLOW_ITEMS: 8 of 800 items take 0.4 s, in two workers; the same ones in both epochs."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """Some files are very large."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.4 if index % 100 == 17 else 0.0002)
        return super().__getitem__(index)


begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Files(800), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
for _ in range(2):
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
