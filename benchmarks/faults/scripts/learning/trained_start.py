"""TRAINED_IN_EVALUATION_MODE: a model that was loaded for inference is trained on."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin
from torch import nn

begin()
net = nn.Sequential(
    nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 10)
)
net.eval()
fit(net, loader(lesson()), torch.optim.AdamW(net.parameters(), lr=1e-3), 5)
