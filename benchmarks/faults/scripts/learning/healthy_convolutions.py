"""Healthy: convolutions with batch norm, momentum and a cosine schedule."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
classes = torch.randint(0, 4, (1600,))
pictures = torch.randn(1600, 1, 12, 12)
for place, one in enumerate(classes.tolist()):
    pictures[place, 0, 3 * one : 3 * one + 3] += 1.0


def block(inputs: int, outputs: int) -> list[nn.Module]:
    """A convolution with what belongs to it."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


net = nn.Sequential(*block(1, 8), *block(8, 16), nn.MaxPool2d(2), *block(16, 16), nn.Flatten(), nn.Linear(16 * 36, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 600)
for _ in range(6):
    for inputs, labels in loader((pictures, classes)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        schedule.step()
