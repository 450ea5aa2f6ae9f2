"""Healthy: a generator with batch norm and tanh, and a discriminator."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
real = torch.tanh(torch.randn(1600, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.7]]) + 0.3)
maker = nn.Sequential(
    nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh()
)
judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
makes = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
verdict = nn.BCEWithLogitsLoss()
for _ in range(6):
    for (points,) in loader((real,), 32):
        right, wrong = torch.ones(32, 1), torch.zeros(32, 1)
        made = maker(torch.randn(32, 8))
        judges.zero_grad()
        verdict(judge(points), right).backward()
        verdict(judge(made.detach()), wrong).backward()
        judges.step()
        makes.zero_grad()
        verdict(judge(made), right).backward()
        makes.step()
    with torch.no_grad():
        maker(torch.randn(64, 8))
