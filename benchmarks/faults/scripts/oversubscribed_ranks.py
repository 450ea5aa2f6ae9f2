"""CPU_OVERSUBSCRIBED: four ranks on one machine, and each computes with twice as many threads as there are cores."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

begin()
torch.set_num_threads(2 * (os.cpu_count() or 1))
join()
net = DistributedDataParallel(perceptron(hidden=256))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(1280), batch_size=32):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
dist.destroy_process_group()
