"""STEP_DRIFT: a mean over all losses so far is made anew after each step, one by one."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
history: list[torch.Tensor] = []
for points, classes in DataLoader(Points(1600), batch_size=8, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(points), classes)
        loss.backward()
        history += [loss.detach()] * 200
        mean = sum(float(one) for one in history) / len(history)
        optimizer.step()
