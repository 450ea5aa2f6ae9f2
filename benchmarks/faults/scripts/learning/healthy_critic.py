"""Healthy: actor and critic with one optimizer and a buffer of what was lived."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import begin
from torch import nn

begin()
body = nn.Sequential(nn.Linear(2, 64), nn.Tanh())
actor, critic = nn.Linear(64, 3), nn.Linear(64, 1)
optimizer = torch.optim.Adam([*body.parameters(), *actor.parameters(), *critic.parameters()], lr=3e-4)
for _ in range(60):
    states, actions, told, rewards = [], [], [], []
    state = torch.zeros(2)
    for _ in range(32):
        with torch.no_grad():
            choice = torch.distributions.Categorical(logits=actor(body(state)))
        action = choice.sample()
        states.append(state)
        actions.append(action)
        told.append(choice.log_prob(action))
        state = (state + torch.tensor([0.1, 0.05]) * (action - 1)).clamp(-2, 2)
        rewards.append(1 - float((state - 1).abs().mean()))
    values, returns = [], 0.0
    for reward in reversed(rewards):
        returns = reward + 0.95 * returns
        values.append(returns)
    lived, wanted = torch.stack(states), torch.tensor(values[::-1])
    for _ in range(10):
        hidden = body(lived)
        found = critic(hidden).squeeze(1)
        now = torch.distributions.Categorical(logits=actor(hidden)).log_prob(torch.stack(actions))
        gain = wanted - found.detach()
        ratio = (now - torch.stack(told)).exp()
        surrogate = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        optimizer.zero_grad()
        (0.5 * nn.functional.mse_loss(found, wanted) - surrogate).backward()
        nn.utils.clip_grad_norm_(body.parameters(), 0.5)
        optimizer.step()
