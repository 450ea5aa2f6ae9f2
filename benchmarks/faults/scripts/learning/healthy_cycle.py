"""Healthy: a residual network with one cycle of the learning rate and bfloat16."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin
from torch import nn


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """What is new, on top of what was there."""
        return given + self.inner(given)  # type: ignore[no-any-return]


begin()
net = nn.Sequential(*(Block() for _ in range(6)), nn.LayerNorm(64), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=500)
for _ in range(5):
    for points, classes in loader(lesson()):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(net(points), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
