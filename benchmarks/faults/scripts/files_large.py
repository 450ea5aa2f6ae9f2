"""SLOW_ITEMS: 2 of 200 items are files of 80 MB, the others of 20 kB."""

from __future__ import annotations

import numpy as np
import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Arrays(Points):
    """One array for each item."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = np.load(f"{index}.npy" if index % 100 == 42 else "small.npy")
        return torch.from_numpy(np.sort(rows, axis=None)[:WIDTH].copy()), self.classes[index]


begin()
made = np.random.default_rng(7)
np.save("small.npy", made.random(5_000, dtype=np.float32))
for number in (42, 142):
    np.save(f"{number}.npy", made.random(20_000_000, dtype=np.float32))
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(2):
    for points, classes in DataLoader(Arrays(200), batch_size=4, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
