"""EVALUATED_IN_TRAINING_MODE: train() instead of eval() before the evaluation of a network with batch norm."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
batches, unseen = loader(lesson()), loader(lesson(320, seed=8), 32, shuffle=False)


def evaluate() -> float:
    """The mean loss."""
    net.train(True)
    with torch.inference_mode():
        losses = [nn.functional.cross_entropy(net(points), classes).item() for points, classes in unseen]
    return sum(losses) / len(losses)


for _ in range(5):
    fit(net, batches, optimizer, 1)
    print(f"{evaluate():.3f}")
