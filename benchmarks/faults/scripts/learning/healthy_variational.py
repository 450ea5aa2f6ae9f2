"""Healthy: a variational autoencoder with a summed loss."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import Tensor, nn


class Model(nn.Module):
    """Encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What came out, and the distribution in between."""
        mean, spread = self.encoder(given).chunk(2, 1)
        drawn = mean + (0.5 * spread).exp() * torch.randn_like(mean)
        return self.decoder(drawn), mean, spread


begin()
data = torch.sigmoid(torch.randn(1600, 8) @ torch.randn(8, 64))
net = Model()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(6):
    for (given,) in loader((data,)):
        made, mean, spread = net(given)
        loss = nn.functional.binary_cross_entropy_with_logits(made, given, reduction="sum")
        loss = loss - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
