"""LEARNING_RATE: a decay that was planned for a third of the steps."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=200)
for _ in range(6):
    for points, classes in loader(lesson()):
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
