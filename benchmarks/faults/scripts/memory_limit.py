"""MEMORY_PRESSURE: a container with little memory, and a program that fills almost all of it at its beginning."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
limit, used = (int(Path(file).read_text()) for file in sys.argv[1:])
cache = torch.ones(int(0.955 * limit - used) // 4)
data = Points(512)
until = time.monotonic() + 8
while time.monotonic() < until:
    for points, classes in DataLoader(data, batch_size=32, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
