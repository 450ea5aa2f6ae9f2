"""Healthy: ranks with equal work, much more of it than of communication."""

from __future__ import annotations

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

begin()
join()
net = DistributedDataParallel(perceptron(hidden=384, depth=3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = Points(40 * 128 * dist.get_world_size())
for points, classes in DataLoader(data, batch_size=128, sampler=DistributedSampler(data)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
dist.destroy_process_group()
