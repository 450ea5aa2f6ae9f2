"""EVALUATION_HEAVY: training data is in memory, validation data on a slow disk."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class Files(Points):
    """As if each point came from a slow disk."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.003)
        return super().__getitem__(index)


begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
training, validation = DataLoader(Points(640), batch_size=16, shuffle=True), DataLoader(Files(160), batch_size=16)
for _ in range(4):
    net.train()
    for points, classes in training:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        print(sum(int((net(points).argmax(1) == classes).sum()) for points, classes in validation))
