"""EXPLODING_GRADIENTS: recurrent weights above one, clipped in every step."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn


class Model(nn.Module):
    """A sum over a long sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNN(4, 32, nonlinearity="relu", batch_first=True)
        with torch.no_grad():
            self.cell.get_parameter("weight_hh_l0").copy_(1.15 * torch.eye(32))
        self.head = nn.Linear(32, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """One number for each sequence."""
        return self.head(self.cell(given)[0][:, -1])  # type: ignore[no-any-return]


begin()
sequences = torch.randn(960, 50, 4)
net = Model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(8):
    for given, wanted in loader((sequences, sequences[:, :, :1].sum(1))):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(given), wanted).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
