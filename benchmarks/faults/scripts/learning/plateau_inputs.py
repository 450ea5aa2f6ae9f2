"""LOSS_NOT_DECREASING: inputs and labels are shuffled, but each by itself."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson
from benchmarks.faults.parts import begin
from torch import nn

begin()
points, classes = lesson(3200)
net = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
for _ in range(6):
    shuffled, others = points[torch.randperm(len(points))], classes[torch.randperm(len(classes))]
    for start in range(0, len(points), 32):
        loss = nn.functional.cross_entropy(net(shuffled[start : start + 32]), others[start : start + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
