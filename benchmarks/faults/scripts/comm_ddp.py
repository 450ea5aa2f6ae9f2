"""COMM_BOUND: DistributedDataParallel over a model of many parameters and hardly any work."""

from __future__ import annotations

import torch
import torch.distributed as dist
from benchmarks.faults.parts import begin, join, marked
from torch import nn
from torch.nn.parallel import DistributedDataParallel

begin()
join()
table = nn.Embedding(40_000, 64)  # its gradient is 10 MB, and a step touches 8 rows
net = DistributedDataParallel(nn.Sequential(table, nn.Flatten(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD([*net.module[2].parameters()], lr=0.01)
for step in range(60):
    rows = torch.arange(step, step + 8).unsqueeze(1)
    with marked(net):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(rows), rows[:, 0] % 10).backward()
        optimizer.step()
dist.destroy_process_group()
