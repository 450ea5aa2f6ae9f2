"""NON_FINITE: one point of the data is no number, and takes all weights with it."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = Points(2400)
data.points[1700, 3] = float("nan")
for points, classes in DataLoader(data, batch_size=16):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
