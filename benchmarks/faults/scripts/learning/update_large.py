"""UPDATE_RATIO: a learning rate for another optimizer."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
layers = [part for _ in range(3) for part in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
net = nn.Sequential(*layers, nn.Linear(64, 10))
fit(net, loader(lesson()), torch.optim.RMSprop(net.parameters(), lr=0.5), 5)
