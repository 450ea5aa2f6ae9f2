"""COMPUTE_STRAGGLER: forward takes 30 ms longer on the last rank."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Slow(nn.Module):
    """As if the processor of this rank were a slow one."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Wait, and change nothing."""
        time.sleep(0.03)
        return points


begin()
last = join() == dist.get_world_size() - 1
inner = perceptron()
net = DistributedDataParallel(nn.Sequential(Slow(), inner) if last else nn.Sequential(nn.Identity(), inner))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(560), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
dist.destroy_process_group()
