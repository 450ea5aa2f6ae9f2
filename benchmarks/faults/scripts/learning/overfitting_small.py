"""OVERFITTING: a large network and 128 noisy items."""

from __future__ import annotations

import torch
from benchmarks.faults.lessons import fit, lesson, loader
from benchmarks.faults.parts import begin, perceptron
from torch import nn

import sonde

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
batches, unseen = loader(lesson(128, noise=10.0)), lesson(640, noise=10.0, seed=8)
for _ in range(12):
    fit(net, batches, optimizer, 8)
    net.eval()
    with torch.no_grad():
        sonde.log(val_loss=nn.functional.cross_entropy(net(unseen[0]), unseen[1]))
    net.train()
