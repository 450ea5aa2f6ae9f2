"""EVALUATED_IN_TRAINING_MODE: an evaluation without eval()."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
batches, unseen = loader(lesson()), loader(lesson(640, seed=8), 64, shuffle=False)
for _ in range(5):
    fit(net, batches, optimizer, 1)
    with torch.no_grad():
        right = sum(int((net(points).argmax(1) == classes).sum()) for points, classes in unseen)
    print(f"{right / 640:.3f}")
