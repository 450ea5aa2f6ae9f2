"""Healthy: REINFORCE on a walk along a line."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import begin
from torch import nn

begin()
policy = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline = 0.0
for _ in range(600):
    place, told, gained = 0.0, [], []
    for _ in range(10):
        choice = torch.distributions.Categorical(logits=policy(torch.tensor([place])))
        action = choice.sample()
        told.append(choice.log_prob(action))
        place += 0.2 if action.item() else -0.2
        gained.append(place)
    total = sum(gained)
    baseline = 0.9 * baseline + 0.1 * total
    optimizer.zero_grad()
    (-(total - baseline) * torch.stack(told).sum()).backward()
    optimizer.step()
