"""STEP_DRIFT: the model compares each batch with all batches before it, which become more and more."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch import nn
from torch.utils.data import DataLoader


class Remembering(nn.Module):
    """A model with a memory that nobody empties."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron()
        self.seen: list[torch.Tensor] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """The scores, moved a little towards what was seen before."""
        self.seen.append(points.detach().repeat(6, 1))
        near = points @ torch.cat(self.seen).T
        return self.inner(points) + 1e-6 * near.softmax(1).mean(1, keepdim=True)  # type: ignore[no-any-return]


begin()
net = Remembering()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(4800), batch_size=32, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
