"""MEMORY_CREEP: the outputs of all steps are kept, half a megabyte each."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept: list[torch.Tensor] = []
data = Points(512)
until = time.monotonic() + 9
while time.monotonic() < until:
    for points, classes in DataLoader(data, batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            scores = net(points)
            torch.nn.functional.cross_entropy(scores, classes).backward()
            optimizer.step()
            kept.append(scores.detach().repeat(300, 1))
