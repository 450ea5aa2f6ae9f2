"""Healthy: a network that was trained before is tuned for other classes with a small rate."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron

begin()
points, classes = lesson()
net = perceptron(hidden=128)
fit(net, loader((points, classes)), torch.optim.Adam(net.parameters(), lr=1e-3), 3)
tuned = torch.optim.AdamW([{"params": net[:-1].parameters(), "lr": 2e-5}, {"params": net[-1].parameters(), "lr": 5e-4}])
fit(net, loader((points, (classes + 1) % 10)), tuned, 6)
