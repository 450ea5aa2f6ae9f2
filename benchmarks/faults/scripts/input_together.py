"""INPUT_BOUND: a dataset that reads all items of a batch at once, slowly (`__getitems__`)."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Table(Points):
    """As if each batch were one question to a data base."""

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        time.sleep(0.02)
        return [self[index] for index in indices]


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Table(1600), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
