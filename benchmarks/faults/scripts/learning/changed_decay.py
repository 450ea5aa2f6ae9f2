"""WEIGHTS_CHANGED: weight decay by hand, after each step."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(5):
    for points, classes in loader(lesson()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
        for parameter in net.parameters():
            parameter.data.mul_(0.999)
