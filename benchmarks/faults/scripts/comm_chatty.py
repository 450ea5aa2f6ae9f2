"""COMM_BOUND: four ranks exchange a hundred single numbers in each step."""

from __future__ import annotations

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.utils.data import DataLoader

begin()
join()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(480), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        for _ in range(100):
            dist.all_reduce(torch.ones(1))
        optimizer.step()
dist.destroy_process_group()
