"""HUNG: one of two ranks reads a pipe into which nobody writes; the other one waits for it in backward."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

begin()
last = join() == dist.get_world_size() - 1
net = DistributedDataParallel(perceptron())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
pipe, _ = os.pipe()
for number, (points, classes) in enumerate(DataLoader(Points(800), batch_size=8)):
    if last and number == 40:
        os.read(pipe, 1)
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
