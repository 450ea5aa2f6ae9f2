"""DEAD_RELU: the first steps with far too high a learning rate kill the units of a network."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron

begin()
net = perceptron(hidden=128, depth=2)
points, classes = lesson()
batches = loader((points.abs(), classes), 32)
fit(net, batches, torch.optim.SGD(net.parameters(), lr=50.0), 1)
fit(net, batches, torch.optim.SGD(net.parameters(), lr=0.01), 8)
