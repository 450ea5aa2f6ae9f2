"""Small training loops of many kinds, and what their recording says of them."""

from __future__ import annotations

from typing import Any

import torch

from sonde.testing import Recorded

Module: Any = torch.nn.Module


def model() -> Any:
    """A small one, always the same."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def loss_of(net: Any) -> Any:
    """A loss of it, through a loss module."""
    return torch.nn.MSELoss()(net(torch.ones(2, 4)), torch.zeros(2, 1))


def train(net: Any, optimizer: Any, steps: int = 3) -> None:
    """The usual loop."""
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def sgd(net: Any) -> Any:
    """An optimizer for it."""
    return torch.optim.SGD(net.parameters(), lr=0.1)


def updates(recorded: Recorded) -> list[tuple[int, int]]:
    """Step and flags of each end of a step."""
    return [(event["step"], event["key"]) for event in recorded.named("update")]


def phases(recorded: Recorded, *names: str) -> list[tuple[str, int]]:
    """Name and step of what happened, in its order; without names, of the usual four."""
    wanted = names or ("forward", "backward", "optimizer", "update")
    return [(event["name"], event["step"]) for event in recorded.events if event["name"] in wanted]
