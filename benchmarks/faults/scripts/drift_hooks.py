"""STEP_DRIFT: in each step one more hook is put on the model, and none is ever taken away."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch import nn
from torch.utils.data import DataLoader


def look(module: nn.Module, given: tuple[torch.Tensor, ...], scores: torch.Tensor) -> None:
    """How sure the model is; nobody wants to know so often."""
    scores.detach().softmax(1).log().std()


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(9600), batch_size=32, shuffle=True):
    with marked(net):
        net.register_forward_hook(look)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
