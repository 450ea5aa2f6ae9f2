"""LAYER_NOT_LEARNING: a head that was replaced after the optimizer had been made."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=128)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
net[-1] = nn.Linear(128, 10)
fit(net, loader(lesson()), optimizer, 5)
