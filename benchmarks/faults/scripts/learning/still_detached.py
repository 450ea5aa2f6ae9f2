"""LAYER_NOT_LEARNING: an encoder whose result is detached."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn


class Model(nn.Module):
    """An encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(64, 10))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Scores."""
        hidden = self.encoder(points).detach()
        return self.head(hidden)  # type: ignore[no-any-return]


begin()
net = Model()
fit(net, loader(lesson()), torch.optim.Adam(net.parameters(), lr=1e-3), 5)
