"""GC_PAUSES: garbage is collected by hand in each step, beside a large index of small objects."""

from __future__ import annotations

import gc

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
index = [[number] for number in range(200_000)]
for points, classes in DataLoader(Points(1600), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
        gc.collect()
