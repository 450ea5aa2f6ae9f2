"""VANISHING_GRADIENTS: ten layers with a sigmoid behind each."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
layers = [part for _ in range(10) for part in (nn.Linear(64, 64), nn.Sigmoid())]
net = nn.Sequential(*layers, nn.Linear(64, 10))
fit(net, loader(lesson()), torch.optim.SGD(net.parameters(), lr=0.05), 5)
