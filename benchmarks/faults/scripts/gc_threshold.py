"""GC_PAUSES: thresholds so low that every few steps all objects are looked at, and the loop makes rings of objects."""

from __future__ import annotations

import gc

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
index: list[list[object]] = [[number] for number in range(200_000)]
gc.set_threshold(200, 2, 2)
for points, classes in DataLoader(Points(1920), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        index += [[number] for number in range(1000)]
        optimizer.step()
