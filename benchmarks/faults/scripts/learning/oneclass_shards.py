"""ONE_CLASS: one shard for each class, which an iterable dataset reads one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from benchmarks.faults.lessons import fit, lesson
from benchmarks.faults.parts import begin, perceptron
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset[dict[str, Tensor]]):
    """All items of a class, then those of the next one."""

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Shard after shard."""
        for kind in range(10):
            for place in (classes == kind).nonzero().flatten().tolist():
                yield {"image": points[place], "label": classes[place]}


class Batches:
    """Batches as pairs."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Of a new pass over the shards."""
        for batch in DataLoader(Shards(), batch_size=16):
            yield batch["image"], batch["label"]


begin()
points, classes = lesson()
net = perceptron(hidden=64)
fit(net, Batches(), torch.optim.Adam(net.parameters(), lr=1e-3), 6)  # type: ignore[arg-type]
