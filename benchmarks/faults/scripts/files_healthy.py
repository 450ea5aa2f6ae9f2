"""Healthy: each item has a file of its own, and two workers read ahead."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """One small file for each item."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with open(f"{index}.bin", "rb") as file:
            point = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
        return point, self.classes[index]


if __name__ == "__main__":
    begin()
    data = Files(400)
    for number in range(len(data)):
        with open(f"{number}.bin", "wb") as file:
            file.write(data.points[number].numpy().tobytes())
    net = perceptron(WIDTH, hidden=1024, depth=3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for points, classes in DataLoader(data, batch_size=8, shuffle=True, num_workers=2):
        for _ in range(2):
            with marked(net):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(points), classes).backward()
                optimizer.step()
