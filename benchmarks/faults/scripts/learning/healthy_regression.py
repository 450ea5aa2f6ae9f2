"""Healthy: a regression that comes to its end, where gradients are small."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
points = torch.randn(1600, 16)
values = points @ torch.randn(16, 1) + 3
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(8):
    for inputs, wanted in loader((points, values)):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), wanted).backward()
        optimizer.step()
