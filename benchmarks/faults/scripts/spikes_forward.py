"""STEP_SPIKES: every 20th step the model renews a table inside forward, which takes 0.2 s."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch import nn
from torch.utils.data import DataLoader


class Renewing(nn.Module):
    """A model that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron(hidden=256)
        self.calls = 0

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Renew the table now and then."""
        self.calls += 1
        if self.calls % 20 == 0:
            time.sleep(0.2)
        return self.inner(points)  # type: ignore[no-any-return]


begin()
net = Renewing()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(3200), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
