"""Training with a black box, and what it has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from sonde.testing import Recorded

Tensor = Any


class Rows(torch.utils.data.Dataset[Any]):
    """Item i is a row of i/100, and its id; the item `bad` raises, the item `odd` is not finite."""

    def __init__(self, length: int = 40, bad: int | None = None, odd: int | None = None) -> None:
        self.length = length
        self.bad = bad
        self.odd = odd

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.bad:
            raise ValueError(f"item {index} is bad")
        row = torch.full((4,), index / 100)
        if index == self.odd:
            row[1] = float("nan")
        return {"x": row, "y": torch.tensor([1.0]), "id": f"row {index}"}


def loader(data: Any = None, **options: Any) -> Any:
    """A loader of batches of four."""
    return torch.utils.data.DataLoader(Rows() if data is None else data, batch_size=4, **options)


def train(batches: Any, most: int | None = None) -> Any:
    """The usual loop, over at most so many batches; the model."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        (net(batch["x"]) - batch["y"]).pow(2).mean().backward()
        optimizer.step()
        if most is not None and number + 1 >= most:
            break
    return net


def folders(recorded: Recorded) -> list[Path]:
    """The dumps of the run, in their order; nothing else stands beside them."""
    box = recorded.path / "blackbox"
    return sorted(box.iterdir()) if box.exists() else []


def dumps(recorded: Recorded) -> list[dict[str, Any]]:
    """What they say."""
    return [json.loads((folder / "dump.json").read_text()) for folder in folders(recorded)]


def only(recorded: Recorded) -> dict[str, Any]:
    """What the only one says."""
    (dump,) = dumps(recorded)
    return dump
