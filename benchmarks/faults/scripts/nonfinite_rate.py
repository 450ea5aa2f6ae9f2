"""NON_FINITE: a learning rate so high that the loss is no number after some steps."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=1e9)
for points, classes in DataLoader(Points(2400), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
