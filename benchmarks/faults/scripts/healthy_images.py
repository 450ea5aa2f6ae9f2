"""Healthy: small pictures, two persistent workers that are quick enough, two epochs."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import SEED, begin, marked
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Noise, made when it is asked for."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(SEED + index)), index % 10


begin()
layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten()]
net = nn.Sequential(*layers, nn.Linear(64 * 13 * 13, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(Pictures(), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
for _ in range(2):
    for points, classes in loader:
        with marked(net):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
