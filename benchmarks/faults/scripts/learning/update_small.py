"""UPDATE_RATIO: a learning rate with three zeros too many."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron

begin()
net = perceptron(hidden=128)
fit(net, loader(lesson()), torch.optim.SGD(net.parameters(), lr=1e-7), 5)
