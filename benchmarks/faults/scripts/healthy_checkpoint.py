"""Healthy: a checkpoint at the end of each epoch, of a model that is small."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=384, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Points(2560), batch_size=32, shuffle=True)
for epoch in range(2):
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, f"epoch{epoch}.pt")
