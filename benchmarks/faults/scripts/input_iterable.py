"""INPUT_BOUND: a stream of records, read by two workers that are too slow for the model."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from benchmarks.faults.parts import WIDTH, begin, marked, perceptron
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """Each worker reads every second record."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for number in range(first, 1600, step):
            time.sleep(0.004)
            yield torch.full((WIDTH,), number / 1600), number % 10


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Stream(), batch_size=10, num_workers=2):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
