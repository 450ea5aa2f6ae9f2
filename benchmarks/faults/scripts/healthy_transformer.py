"""Healthy: a small transformer."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import begin, marked
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

begin()
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
net = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(16 * 64, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(1280, 16, 64), torch.arange(1280) % 10)
for points, classes in DataLoader(data, batch_size=16, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
