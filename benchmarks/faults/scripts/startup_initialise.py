"""WORKER_STARTUP: each worker opens its files for 0.3 s, in each of ten short epochs."""

from __future__ import annotations

import time

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


def initialise(worker: int) -> None:
    """As if there were an index to read."""
    time.sleep(0.3)
    assert worker >= 0


begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Points(320), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=initialise)
for _ in range(10):
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
