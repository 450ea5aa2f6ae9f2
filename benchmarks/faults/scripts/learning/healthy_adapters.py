"""Healthy: low-rank adapters beside frozen layers."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn


class Adapted(nn.Module):
    """A frozen layer and a small one beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Both together."""
        return self.base(given) + 2 * self.up(self.down(given))  # type: ignore[no-any-return]


begin()
points, classes = lesson()
net = perceptron(hidden=256)
fit(net, loader((points, classes)), torch.optim.Adam(net.parameters(), lr=1e-3), 2)
for place, module in enumerate(net):
    if isinstance(module, nn.Linear):
        net[place] = Adapted(module)
learning = [one for one in net.parameters() if one.requires_grad]
fit(net, loader((points, (classes + 3) % 10)), torch.optim.AdamW(learning, lr=2e-3), 8)
