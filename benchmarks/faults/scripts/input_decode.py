"""INPUT_BOUND: items are packed text, and decoding them costs more processor time than training."""

from __future__ import annotations

import json
import zlib

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader, Dataset


class Packed(Dataset[tuple[torch.Tensor, int]]):
    """Each point as compressed JSON, sixteen times over."""

    def __init__(self, count: int) -> None:
        plain = Points(count)
        self.packed = [zlib.compress(json.dumps([point.tolist()] * 16).encode(), 1) for point in plain.points]
        self.classes = plain.classes.tolist()

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(json.loads(zlib.decompress(self.packed[index]))[0]), self.classes[index]


begin()
net = perceptron()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = Packed(256)
for _ in range(8):
    for points, classes in DataLoader(data, batch_size=16, shuffle=True):
        with marked(net):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
