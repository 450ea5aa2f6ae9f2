"""Healthy: data in memory, a network that keeps the processor busy."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.Adam(net.parameters())
data = Points(4800)  # long enough that one stall of a busy host is no finding
for _ in range(2):
    for points, classes in DataLoader(data, batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
