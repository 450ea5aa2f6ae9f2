"""WORKER_STARTUP: short epochs, and a worker that is started anew for each of them, by spawning."""

from __future__ import annotations

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


def main() -> None:
    """A spawned worker imports this file: it must not train."""
    begin()
    net = perceptron(hidden=256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Points(256), batch_size=16, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    for _ in range(4):
        for points, classes in loader:
            with marked(net):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(points), classes).backward()
                optimizer.step()


if __name__ == "__main__":
    main()
