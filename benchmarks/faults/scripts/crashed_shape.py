"""CRASHED: the last batch is too short for the model."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked
from torch import nn
from torch.utils.data import DataLoader

begin()
net = nn.Sequential(nn.Flatten(0), nn.Linear(16 * 64, 256), nn.ReLU(), nn.Linear(256, 160), nn.Unflatten(0, (16, 10)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(1607), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
