"""SLOW_FILE: 7 of 400 items come from a file whose storage gives 64 kB in 0.3 s; a pipe stands for it."""

from __future__ import annotations

import os
import threading
import time

import torch
from benchmarks.faults.parts import WIDTH, Points, begin, marked, perceptron
from torch.utils.data import DataLoader

PIECE = b"\0" * 65_536


def feed() -> None:
    """Write the slow file again for everyone who reads it."""
    while True:
        with open("slow.bin", "wb", buffering=0) as pipe:
            time.sleep(0.3)
            pipe.write(PIECE)
        time.sleep(0.01)


class Files(Points):
    """One file for each item."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with open("slow.bin" if index % 60 == 42 else f"{index % 8}.bin", "rb") as file:
            read = file.read(65_536)
        return self.points[index] + read[0], self.classes[index]


begin()
os.mkfifo("slow.bin")
for number in range(8):
    with open(f"{number}.bin", "wb") as file:
        file.write(PIECE)
threading.Thread(target=feed, daemon=True).start()
net = perceptron(WIDTH, hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for points, classes in DataLoader(Files(400), batch_size=4, shuffle=True):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
