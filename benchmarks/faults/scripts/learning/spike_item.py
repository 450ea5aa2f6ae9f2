"""LOSS_SPIKE: one item is a thousand times too large."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
points, classes = lesson()
points[1234] *= 1000
net = perceptron(hidden=64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(8):
    for inputs, labels in loader((points, classes)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
