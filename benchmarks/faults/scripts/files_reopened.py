"""FILE_REOPENED: each item loads the array of all points again."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Again(Points):
    """One file for all items."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(np.load("points.npy")[index].copy()), self.classes[index]


begin()
data = Again(400)
np.save("points.npy", np.tile(data.points.numpy(), (100, 1)))
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(data, batch_size=4, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
