"""Healthy: four ranks that wait for a device most of the time, as ranks do that have one."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Device(nn.Module):
    """As if an accelerator computed: the processor has nothing to do meanwhile."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Wait, and change nothing."""
        time.sleep(0.05)
        return points


begin()
join()
net = DistributedDataParallel(nn.Sequential(Device(), perceptron()))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Points(400), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
dist.destroy_process_group()
