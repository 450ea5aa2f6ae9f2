"""Healthy: two views of each item, one network, and a contrastive loss."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _ in range(10):
    for points, _ in loader(lesson(), 32):
        first, second = (nn.functional.normalize(net(points + 0.5 * torch.randn_like(points)), dim=1) for _ in range(2))
        scores = first @ second.T / 0.2
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, torch.arange(len(points))).backward()
        optimizer.step()
