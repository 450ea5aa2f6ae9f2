"""RECOMPILING: a number of Python that changes with the epoch, and goes into each layer."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked
from torch import Tensor, nn
from torch.utils.data import DataLoader


class Model(nn.Module):
    """Dropout that becomes less."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.5
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.head = nn.Linear(64, 10)

    def forward(self, points: Tensor) -> Tensor:
        """Scores."""
        for layer in self.layers:
            points = nn.functional.dropout(torch.relu(layer(points)), self.rate)
        return self.head(points)  # type: ignore[no-any-return]


begin()
net = Model()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(Points(480), batch_size=16, shuffle=True)
for epoch in range(8):
    net.rate = 0.5 / (epoch + 1)
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            nn.functional.cross_entropy(compiled(points), classes).backward()
            optimizer.step()
