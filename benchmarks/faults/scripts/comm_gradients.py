"""COMM_BOUND: two ranks average their gradients by hand, one large array after the other."""

from __future__ import annotations

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.utils.data import DataLoader

begin()
join()
net = perceptron()
extra = torch.zeros(2_000_000)  # as if the network had a large embedding
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(800), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        dist.all_reduce(extra)
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
dist.destroy_process_group()
