"""Healthy: no DataLoader, batches are slices of one tensor, and the loss is written by hand."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron

begin()
net = perceptron(hidden=512, depth=3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = Points(3200)
for start in range(0, len(data), 32):
    points, classes = data.points[start : start + 32], data.classes[start : start + 32]
    with marked(net):
        optimizer.zero_grad()
        scores = net(points)
        loss = (scores.logsumexp(1) - scores.gather(1, classes.unsqueeze(1)).squeeze(1)).mean()
        loss.backward()
        optimizer.step()
