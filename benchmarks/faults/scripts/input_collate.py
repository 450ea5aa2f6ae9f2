"""INPUT_BOUND: items are quick, but putting a batch together sorts and pads it in plain Python."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


def collate(items: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Value by value, as nobody should."""
    rows = [[round(float(value), 6) for value in point for _ in range(3)][::3] for point, _ in items]
    return torch.tensor(rows), torch.stack([label for _, label in items])


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(3200), batch_size=16, shuffle=True, collate_fn=collate):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
