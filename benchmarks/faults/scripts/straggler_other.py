"""STRAGGLER: the last rank does something of its own between update and update, which no phase explains."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

begin()
last = join() == dist.get_world_size() - 1
net = DistributedDataParallel(perceptron())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(560), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        if last:
            time.sleep(0.03)  # as if this rank alone wrote a log
        optimizer.step()
dist.destroy_process_group()
