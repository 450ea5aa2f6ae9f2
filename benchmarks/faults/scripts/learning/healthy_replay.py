"""Healthy: Q-learning from a replay buffer, with a target network."""

from __future__ import annotations

import copy
import random

import torch
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 2))
target = copy.deepcopy(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
buffer: list[tuple[float, int, float, float]] = []
place = 0.0
for step in range(1500):
    with torch.no_grad():
        action = int(net(torch.tensor([place])).argmax()) if random.random() > 0.2 else random.randrange(2)
    after = max(-1.0, min(1.0, place + (0.1 if action else -0.1)))
    buffer.append((place, action, after, after))
    place = after if step % 50 else 0.0
    if len(buffer) < 64:
        continue
    before, actions, rewards, later = zip(*random.sample(buffer, 32), strict=True)
    with torch.no_grad():
        best = target(torch.tensor(later).unsqueeze(1)).max(1).values
    chosen = net(torch.tensor(before).unsqueeze(1)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
    loss = nn.functional.smooth_l1_loss(chosen, torch.tensor(rewards) + 0.95 * best)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        target.load_state_dict(net.state_dict())
