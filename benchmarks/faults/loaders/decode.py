"""A loader of which it is predicted what other settings bring: items are decoded, which takes processor time."""

from __future__ import annotations

import json
import sys
import zlib

import torch
from benchmarks.faults.parts import Points, begin, perceptron
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


if __name__ == "__main__":
    begin()
    net = perceptron(hidden=512, depth=3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(int(sys.argv[2])):
        for points, classes in DataLoader(Packed(1600), batch_size=16, num_workers=int(sys.argv[1])):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(points), classes).backward()
            optimizer.step()
