"""SATURATED: weights in front of sigmoids that begin at ten times their size."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(64, 96), nn.Sigmoid(), nn.Linear(96, 96), nn.Sigmoid(), nn.Linear(96, 10))
for module in net:
    if isinstance(module, nn.Linear) and module.out_features == 96:
        nn.init.normal_(module.weight, std=5.0)
fit(net, loader(lesson(), 32), torch.optim.Adam(net.parameters(), lr=1e-3), 8)
