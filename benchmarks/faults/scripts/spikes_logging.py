"""STEP_SPIKES: every 25th step draws a picture of the weights for 0.3 s, between backward and update."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, (points, classes) in enumerate(DataLoader(Points(4000), batch_size=16, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        if number % 25 == 24:
            time.sleep(0.3)
        optimizer.step()
