"""RECOMPILING: batches of ever other lengths, and a model that was compiled for fixed shapes."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(WIDTH, hidden=64, depth=4)
compiled = torch.compile(net, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, (points, classes) in enumerate(DataLoader(Points(3200), batch_size=16, shuffle=True)):
    kept = 16 - number // 20 % 8
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(points[:kept]), classes[:kept]).backward()
        optimizer.step()
