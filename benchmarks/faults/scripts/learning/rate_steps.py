"""LEARNING_RATE: a schedule for epochs that is stepped with every batch."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.1)
for _ in range(6):
    for points, classes in loader(lesson()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
        schedule.step()
