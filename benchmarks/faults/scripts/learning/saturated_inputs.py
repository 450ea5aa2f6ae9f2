"""SATURATED: inputs that nobody has normalised, in front of a tanh."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
points, classes = lesson()
net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10))
fit(net, loader((points * 255, classes)), torch.optim.SGD(net.parameters(), lr=0.01), 5)
