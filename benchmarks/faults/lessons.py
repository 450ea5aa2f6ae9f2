"""What the scripts about learning share: data that can be learned, and the plainest loop."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.faults.parts import CLASSES, SEED, WIDTH


def lesson(count: int = 1600, noise: float = 0.3, width: int = WIDTH, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Points, and classes that follow from them. `seed`: of the points; what makes a class is always the same."""
    made, rule = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(SEED)
    points = torch.randn(count, width, generator=made)
    scores = points @ torch.randn(width, CLASSES, generator=rule) + noise * torch.randn(count, CLASSES, generator=made)
    return points, scores.argmax(1)


def loader(data: tuple[Tensor, ...], batch: int = 16, *, shuffle: bool = True) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of it."""
    return DataLoader(TensorDataset(*data), batch_size=batch, shuffle=shuffle, drop_last=True)


def fit(
    net: nn.Module, batches: Iterable[tuple[Tensor, ...]], optimizer: torch.optim.Optimizer, epochs: int = 8
) -> None:
    """Train a classifier."""
    for _ in range(epochs):
        for points, classes in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(points), classes)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
