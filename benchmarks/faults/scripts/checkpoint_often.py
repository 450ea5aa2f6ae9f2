"""CHECKPOINT_HEAVY: model and optimizer are saved after every second step."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512)
optimizer = torch.optim.Adam(net.parameters())
for number, (points, classes) in enumerate(DataLoader(Points(1600), batch_size=8, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
    if number % 2:
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "newest.pt")
