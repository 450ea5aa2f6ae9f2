"""TRAINED_IN_EVALUATION_MODE: nobody calls train() after the first evaluation."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
batches, unseen = loader(lesson()), loader(lesson(640, seed=8), 64, shuffle=False)
for _ in range(6):
    fit(net, batches, optimizer, 1)
    net.eval()
    with torch.no_grad():
        right = sum(int((net(points).argmax(1) == classes).sum()) for points, classes in unseen)
    print(f"{right / 640:.3f}")
