"""INPUT_BOUND: no DataLoader; a generator of the script's own reads 12 ms for each batch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron


def batches(data: Points, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """As if they came from a data base."""
    for start in range(0, len(data), size):
        time.sleep(0.012)
        yield data.points[start : start + size], data.classes[start : start + size]


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in batches(Points(3200), 16):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
