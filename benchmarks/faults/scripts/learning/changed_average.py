"""WEIGHTS_CHANGED: a moving average that is copied into the model itself after each step."""

from __future__ import annotations

import copy

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
average = copy.deepcopy(net.state_dict())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(6):
    for points, classes in loader(lesson()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
        with torch.no_grad():
            for name, value in net.state_dict().items():
                average[name].lerp_(value, 0.1)
        net.load_state_dict(average)
