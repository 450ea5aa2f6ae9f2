"""EXPLODING_GRADIENTS: weights of twelve layers that begin three times too large."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
layers = [part for _ in range(12) for part in (nn.Linear(64, 64), nn.ReLU())]
net = nn.Sequential(*layers, nn.Linear(64, 10))
for module in net:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.5)
fit(net, loader(lesson()), torch.optim.Adam(net.parameters(), lr=1e-4), 5)
