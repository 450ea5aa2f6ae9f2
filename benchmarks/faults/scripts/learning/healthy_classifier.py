"""Healthy: a classifier with dropout, evaluated as it should be."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

import sonde

begin()
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
batches, unseen = loader(lesson()), loader(lesson(640, seed=8), 64, shuffle=False)
for _ in range(8):
    fit(net, batches, optimizer, 1)
    net.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(net(points), classes) for points, classes in unseen]
    sonde.log(val_loss=torch.stack(losses).mean())
    net.train()
