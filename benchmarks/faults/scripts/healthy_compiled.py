"""Healthy: a compiled model, whose last batch is smaller."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(WIDTH, hidden=512, depth=3)
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    for points, classes in DataLoader(Points(3205), batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(compiled(points), classes).backward()
            optimizer.step()
