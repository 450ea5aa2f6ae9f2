"""GRADIENT_ACCUMULATION: eight micro-batches for each update, and no loss is divided."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(10):
    for number, (points, classes) in enumerate(loader(lesson())):
        nn.functional.cross_entropy(net(points), classes).backward()
        if number % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()
