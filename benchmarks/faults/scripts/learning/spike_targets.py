"""LOSS_SPIKE: five targets of a regression are in other units."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
points = torch.randn(3200, 16)
values = points @ torch.randn(16, 1) + 0.1 * torch.randn(3200, 1)
values[777:782] *= 100
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(4):
    for inputs, wanted in loader((points, values), shuffle=False):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), wanted).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
