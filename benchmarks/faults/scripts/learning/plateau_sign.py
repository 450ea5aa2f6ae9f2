"""LOSS_NOT_DECREASING: the sign of an update is wrong, and the loss rises."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron

begin()
net = perceptron(hidden=64)
fit(net, loader(lesson()), torch.optim.SGD(net.parameters(), lr=0.002, maximize=True), 6)
