"""A small training with a few slow items hidden in its data. There is nothing of Sonde in it.

sonde run examples/slow.py        the verdict names them
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SLOW = {77, 237, 397}


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Three pictures of 480 take a fifth of a second to decode."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.2 if index in SLOW else 0.0005)
        return torch.randn(64), index % 10


def main() -> None:
    """Train for four epochs."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = nn.CrossEntropyLoss()
    loader = DataLoader(Pictures(), batch_size=16, shuffle=True, num_workers=2)
    for epoch in range(4):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
