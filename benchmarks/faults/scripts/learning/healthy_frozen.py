"""Healthy: a frozen backbone in evaluation mode, and a head that learns."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin
from torch import nn


class Model(nn.Module):
    """A backbone that others have trained, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.head(self.backbone(points))  # type: ignore[no-any-return]


begin()
net = Model()
net.backbone.requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(6):
    net.train()
    net.backbone.eval()
    for points, classes in loader(lesson()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
