"""KILLED: a container with little memory, and a program that wants more and more until the kernel ends it."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept: list[torch.Tensor] = []
data = Points(512)
while True:
    for points, classes in DataLoader(data, batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
            kept.append(torch.ones(125_000))
