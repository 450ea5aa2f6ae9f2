"""LAYER_NOT_LEARNING: a loop over names that freezes a block in the middle as well."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(12)), nn.Linear(64, 10))
for name, parameter in net.named_parameters():
    if name.startswith("1"):  # block 1 is meant; 10 and 11 begin so too
        parameter.requires_grad_(False)
fit(net, loader(lesson()), torch.optim.Adam(net.parameters(), lr=1e-3), 5)
