"""RESIDUAL_HEAVY: after each update, a table of confusions is counted in plain Python."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import CLASSES, Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(2400), batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        scores = net(points)
        torch.nn.functional.cross_entropy(scores, classes).backward()
        optimizer.step()
        counts = {(wanted, given): 0 for wanted in range(CLASSES) for given in range(CLASSES)}
        for _ in range(8):
            for wanted, row in zip(classes, scores.detach(), strict=True):
                for given in range(CLASSES):
                    counts[int(wanted), given] += bool(row[given] >= row.max())
