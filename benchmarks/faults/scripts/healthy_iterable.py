"""Healthy: a stream of records that is quicker than the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from benchmarks.faults.parts import WIDTH, begin, marked, perceptron
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """Numbers, one after the other."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for number in range(3200):
            yield torch.full((WIDTH,), number / 3200), number % 10


begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Stream(), batch_size=32):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
