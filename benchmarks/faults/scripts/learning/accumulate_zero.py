"""GRADIENT_ACCUMULATION: gradients are never set to zero."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
for _ in range(6):
    for points, classes in loader(lesson()):
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
