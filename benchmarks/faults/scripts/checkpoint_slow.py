"""CHECKPOINT_HEAVY: a checkpoint in 25 steps, onto a disk that takes 0.3 s for it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import torch
from benchmarks.faults.parts import Points, begin, marked, perceptron
from torch.utils.data import DataLoader


class SlowDisk(io.BytesIO):
    """As if it were mounted from far away: the first write waits."""

    waited = False

    def write(self, data: object) -> int:
        """Wait once, then write."""
        if not self.waited:
            self.waited = True
            time.sleep(0.3)
        return super().write(data)  # type: ignore[arg-type]


begin()
net = perceptron(hidden=256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for number, (points, classes) in enumerate(DataLoader(Points(3200), batch_size=16, shuffle=True)):
    with marked(net):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), classes).backward()
        optimizer.step()
    if number % 25 == 24:
        disk = SlowDisk()
        torch.save(net.state_dict(), disk)
        Path("model.pt").write_bytes(disk.getvalue())
