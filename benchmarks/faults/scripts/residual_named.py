"""RESIDUAL_HEAVY: no loader, and after each step 10 ms in a span that the program has named itself."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import WIDTH, begin, marked, perceptron

import sonde

begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
points = torch.randn(16, WIDTH)
for _ in range(150):
    with marked(net):
        optimizer.zero_grad()
        net(points).square().mean().backward()
        optimizer.step()
    with sonde.span("metrics"):
        time.sleep(0.01)
