"""Healthy: two heads with a loss each, label smoothing and weight averaging."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import lesson, loader
from benchmarks.faults.parts import begin
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Model(nn.Module):
    """A body and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64), nn.SiLU())
        self.kinds, self.size = nn.Linear(64, 10), nn.Linear(64, 1)

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and a number."""
        hidden = self.body(points)
        return self.kinds(hidden), self.size(hidden).squeeze(1)


begin()
net = Model()
average = AveragedModel(net)
optimizer = torch.optim.NAdam(net.parameters(), lr=1e-3)
for _ in range(6):
    for points, classes in loader(lesson()):
        kinds, size = net(points)
        loss = nn.functional.cross_entropy(kinds, classes, label_smoothing=0.1)
        loss = loss + 0.3 * nn.functional.mse_loss(size, points.norm(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
