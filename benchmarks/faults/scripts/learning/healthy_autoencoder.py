"""Healthy: an autoencoder of sparse pictures with a sigmoid at its end."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
pictures = (torch.rand(1600, 8) > 0.7).float() @ (torch.rand(8, 64) > 0.8).float()
pictures = pictures.clamp(0, 1)
net = nn.Sequential(
    nn.Linear(64, 48),
    nn.ReLU(),
    nn.Linear(48, 8),
    nn.Tanh(),
    nn.Linear(8, 48),
    nn.ReLU(),
    nn.Linear(48, 64),
    nn.Sigmoid(),
)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(8):
    for (inputs,) in loader((pictures,)):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy(net(inputs), inputs).backward()
        optimizer.step()
