"""INPUT_BOUND: one worker makes a batch in 24 ms, training needs one every 2 ms."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """As if each point came from a slow disk."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.003)
        return super().__getitem__(index)


begin()
net = perceptron()
optimizer = torch.optim.Adam(net.parameters())
for points, classes in DataLoader(Files(960), batch_size=8, shuffle=True, num_workers=1):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
