"""SMALL_READS: each item is read in 4,000 pieces of 64 bytes."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

PIECES, SIZE = 4000, 64


class Pieces(Points):
    """A file whose buffer holds one piece."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with open(f"{index % 8}.bin", "rb", buffering=SIZE) as file:
            read = [file.read(SIZE) for _ in range(PIECES)]
        return self.points[index] + read[-1][0], self.classes[index]


begin()
for number in range(8):
    with open(f"{number}.bin", "wb") as file:
        file.write(bytes(PIECES * SIZE))
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Pieces(240), batch_size=4, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
