"""RESIDUAL_HEAVY: between backward and update, something is sent to a server that takes 10 ms."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


def log(loss: float) -> None:
    """As if a tracker answered slowly."""
    time.sleep(0.01)
    assert loss >= 0


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(2400), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(points), classes)
        loss.backward()
        log(float(loss))
        optimizer.step()
