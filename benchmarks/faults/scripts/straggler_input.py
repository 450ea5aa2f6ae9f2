"""INPUT_STRAGGLER: the last rank reads from a slow disk, the others wait for it in backward."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from benchmarks.faults.parts import Points, begin, join, marked, perceptron
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Files(Points):
    """As if each point came from a slow disk."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.004)
        return super().__getitem__(index)


begin()
last = join() == dist.get_world_size() - 1
net = DistributedDataParallel(perceptron())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader((Files if last else Points)(560), batch_size=8):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
dist.destroy_process_group()
