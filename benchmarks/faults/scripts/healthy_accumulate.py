"""Healthy: gradients of four micro-batches for each update."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

MICRO = 4

begin()
net = perceptron(hidden=384, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = iter(DataLoader(Points(5120), batch_size=16, shuffle=True))
for _ in range(5120 // 16 // MICRO):
    with marked(net):
        for _ in range(MICRO):
            points, classes = next(loader)
            (torch.nn.functional.cross_entropy(net(points), classes) / MICRO).backward()
        optimizer.step()
        optimizer.zero_grad()
