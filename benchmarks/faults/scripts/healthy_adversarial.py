"""Healthy: two networks with an optimizer each, which learn from each other."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked
from torch import nn
from torch.utils.data import DataLoader

begin()
maker = nn.Sequential(nn.Linear(16, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, WIDTH))
judge = nn.Sequential(nn.Linear(WIDTH, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1))
makes, judges = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
right, wrong = torch.ones(32, 1), torch.zeros(32, 1)
verdict = nn.BCEWithLogitsLoss()
for points, _ in DataLoader(Points(3200), batch_size=32, shuffle=True):
    with marked(judge):
        made = maker(torch.randn(32, 16))
        judges.zero_grad()
        (verdict(judge(points), right) + verdict(judge(made.detach()), wrong)).backward()
        judges.step()
        makes.zero_grad()
        verdict(judge(made), right).backward()
        makes.step()
