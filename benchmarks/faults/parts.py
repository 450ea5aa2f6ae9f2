"""What the scripts share: a small model, data, ranks, and the mark of a step that a peer needs; all of it with fixed seeds."""

from __future__ import annotations

import os
import random
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

SEED = 7
WIDTH = 64
CLASSES = 10
PEER = "FAULTS_PEER"  # an environment variable: the peer that watches instead of Sonde


def begin() -> None:
    """One thread and fixed seeds: the fault is to be the only thing that is unusual."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    if os.environ.get(PEER) == "traceml":
        import traceml_ai  # type: ignore[import-not-found]

        traceml_ai.init(mode="auto")


def marked(net: nn.Module) -> AbstractContextManager[None]:
    """Around a step: TraceML must be told where it is. For Sonde, which finds steps itself, there is nothing here."""
    if os.environ.get(PEER) == "traceml":
        import traceml_ai

        return traceml_ai.trace_step(net)  # type: ignore[no-any-return]
    return nullcontext()


def join() -> int:
    """Join the other ranks of the job; which rank this is."""
    dist.init_process_group("gloo")
    return dist.get_rank()


def perceptron(width: int = WIDTH, hidden: int = 64, depth: int = 2) -> nn.Sequential:
    """A plain network: 0.3 ms for a step of 16 points on a free core; `hidden` makes it as slow as one likes."""
    layers: list[nn.Module] = [nn.Linear(width, hidden), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, CLASSES))


class Points(Dataset[tuple[Tensor, Tensor]]):
    """Points in memory with their classes. Slow datasets are made of it."""

    def __init__(self, count: int, width: int = WIDTH) -> None:
        made = torch.Generator().manual_seed(SEED)
        self.points = torch.randn(count, width, generator=made)
        self.classes = (self.points @ torch.randn(width, CLASSES, generator=made)).argmax(1)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.points[index], self.classes[index]
