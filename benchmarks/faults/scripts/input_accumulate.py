"""INPUT_BOUND: four micro-batches for each update, each of them waited for."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

MICRO = 4


class Files(Points):
    """As if each point came from a slow disk."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)
        return super().__getitem__(index)


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = iter(DataLoader(Files(1280), batch_size=4, shuffle=True))
for _ in range(1280 // 4 // MICRO):
    group = [next(loader) for _ in range(MICRO)]
    with marked(net):
        for points, classes in group:
            (torch.nn.functional.cross_entropy(net(points), classes) / MICRO).backward()
        optimizer.step()
        optimizer.zero_grad()
