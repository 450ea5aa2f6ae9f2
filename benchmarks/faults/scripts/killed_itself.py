"""KILLED: signal 9 in the middle of training."""

from __future__ import annotations

import os
import signal

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader

begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, (points, classes) in enumerate(DataLoader(Points(2400), batch_size=16, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        if number == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
