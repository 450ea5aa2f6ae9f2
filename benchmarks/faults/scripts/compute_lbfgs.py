"""COMPUTE_BOUND: an optimizer that asks for forward and backward many times in each step."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=128)
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=8)
for points, classes in DataLoader(Points(1920), batch_size=32, shuffle=True):

    def closure(points: torch.Tensor = points, classes: torch.Tensor = classes) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(points), classes)
        loss.backward()
        return loss

    with marked(net):
        optimizer.step(closure)
