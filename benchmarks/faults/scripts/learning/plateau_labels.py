"""LOSS_NOT_DECREASING: labels that have nothing to do with their inputs."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import Tensor

begin()
points, _ = lesson()
net = perceptron(hidden=64)


def mixed(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The points, and labels of anything."""
    return torch.stack([one for one, _ in batch]), torch.randint(0, 10, (len(batch),))


batches = loader((points, torch.zeros(len(points), dtype=torch.long)))
batches.collate_fn = mixed
fit(net, batches, torch.optim.Adam(net.parameters(), lr=1e-3), 8)
