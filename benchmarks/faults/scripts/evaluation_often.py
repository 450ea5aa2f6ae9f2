"""EVALUATION_HEAVY: the whole validation set after every 10 steps."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

VALIDATION = 12_800

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
validation = DataLoader(Points(VALIDATION), batch_size=64)
for number, (points, classes) in enumerate(DataLoader(Points(1600), batch_size=16, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
    if number % 10 == 9:
        net.eval()
        with torch.no_grad():
            right = sum(int((net(one).argmax(1) == wanted).sum()) for one, wanted in validation)
        net.train()
        print(f"{number + 1} {right / VALIDATION:.3f}")
