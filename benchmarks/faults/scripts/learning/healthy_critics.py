"""Healthy: a Wasserstein GAN with a gradient penalty and five steps of the critic for each of the generator."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
real = torch.randn(2400, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.3]]) + 2
maker = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
makes = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.5, 0.9))
criticises = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9))
for _ in range(8):
    for number, (points,) in enumerate(loader((real,), 32)):
        with torch.no_grad():
            made = maker(torch.randn(32, 4))
        between = (points + torch.rand(32, 1) * (made - points)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        criticises.zero_grad()
        loss = critic(made).mean() - critic(points).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
        loss.backward()
        criticises.step()
        if number % 5 == 4:
            makes.zero_grad()
            (-critic(maker(torch.randn(32, 4))).mean()).backward()
            makes.step()
