"""DEAD_RELU: biases that begin far below zero."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

begin()
net = perceptron(hidden=128, depth=3)
hidden = net[2]
assert isinstance(hidden, nn.Linear)
nn.init.constant_(hidden.bias, -8.0)
fit(net, loader(lesson()), torch.optim.SGD(net.parameters(), lr=0.05), 5)
