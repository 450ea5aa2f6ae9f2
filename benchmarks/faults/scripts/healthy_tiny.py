"""Healthy: steps of a third of a millisecond. The share of fetching is large, and worth nothing."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=32)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Points(1600), batch_size=8, shuffle=True)
for _ in range(5):
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
