"""VANISHING_GRADIENTS: weights of twelve tanh layers that begin far too small."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.Tanh())]
net = nn.Sequential(*layers, nn.Linear(64, 10))
for module in net:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
fit(net, loader(lesson(), 32), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 8)
