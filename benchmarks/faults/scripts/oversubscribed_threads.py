"""CPU_OVERSUBSCRIBED: eight times as many threads as there are cores."""

from __future__ import annotations

import os

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
torch.set_num_threads(8 * (os.cpu_count() or 1))
net = perceptron(hidden=1024)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(19_200), batch_size=64, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
