"""LEARNING_RATE: going on from a checkpoint, with a rate that is a hundred times too high."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron

begin()
net = perceptron(hidden=64)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
batches = loader(lesson())
fit(net, batches, optimizer, 3)
state = optimizer.state_dict()
state["param_groups"][0]["lr"] = 0.1
optimizer.load_state_dict(state)
fit(net, batches, optimizer, 3)
