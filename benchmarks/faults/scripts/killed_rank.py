"""KILLED: one of two ranks is ended by signal 9, and torchrun ends the other."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

begin()
last = join() == dist.get_world_size() - 1
net = DistributedDataParallel(perceptron(hidden=256))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, (points, classes) in enumerate(DataLoader(Points(800), batch_size=8)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        if last and number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
