"""A training that saves a checkpoint in the middle of an epoch, and goes on from it: rightly, or from the epoch's start."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--save", type=int)
parser.add_argument("--stop", type=int, default=1000)
parser.add_argument("--load", action="store_true")
parser.add_argument("--skip", type=int, default=0)
parser.add_argument("--rate", type=float)
given = parser.parse_args()


class Numbers(Dataset[Any]):
    """Sixty-four items."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 64)


def order(epoch: int) -> list[int]:
    """The same for each epoch, whoever asks."""
    return torch.randperm(64, generator=torch.Generator().manual_seed(epoch)).tolist()


torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, epoch, batch = 0, 0, 0
if given.load:
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step, epoch = state["step"], state["epoch"]
if given.rate:
    optimizer.param_groups[0]["lr"] = given.rate
begun = given.skip
while epoch < 3 and step < given.stop:
    for value in DataLoader(Numbers(), batch_size=4, sampler=order(epoch)[begun:]):
        loss = (model(value) - value.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == given.save:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "epoch": epoch},
                "state.pt",
            )
        if step >= given.stop:
            break
    epoch, begun = epoch + 1, 0
