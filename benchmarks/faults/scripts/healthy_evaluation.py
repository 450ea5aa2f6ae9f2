"""Healthy: a short evaluation after each epoch."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
training, validation = DataLoader(Points(1280), batch_size=32, shuffle=True), DataLoader(Points(160), batch_size=32)
for _ in range(3):
    net.train()
    for points, classes in training:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        print(sum(int((net(points).argmax(1) == classes).sum()) for points, classes in validation))
