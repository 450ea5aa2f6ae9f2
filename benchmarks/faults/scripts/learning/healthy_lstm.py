"""Healthy: an LSTM over padded token sequences."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn


class Model(nn.Module):
    """Tokens to a class."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 24, padding_idx=0)
        self.cell = nn.LSTM(24, 48, batch_first=True)
        self.head = nn.Linear(48, 3)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.head(self.cell(self.tokens(given))[0].amax(1))  # type: ignore[no-any-return]


begin()
texts = torch.randint(1, 30, (1600, 20))
lengths = torch.randint(5, 20, (1600, 1))
texts[torch.arange(20) >= lengths] = 0
classes = ((texts < 8) & (texts > 0)).sum(1).clamp(3, 5) - 3
net = Model()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(6):
    for given, wanted in loader((texts, classes)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(given), wanted).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
