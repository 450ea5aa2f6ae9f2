"""A training that saves a checkpoint in the middle of an epoch, and goes on from it: rightly, or from the epoch's start."""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--save", type=int)
parser.add_argument("--stop", type=int, default=1000)
parser.add_argument("--load", action="store_true")
parser.add_argument("--skip", type=int, default=0)
parser.add_argument("--rate", type=float)
parser.add_argument("--die", action="store_true", help="at the last step, the first time")
given = parser.parse_args()
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
restarted = attempt > 0
rank, world = (int(os.environ.get(name, usual)) for name, usual in (("RANK", "0"), ("WORLD_SIZE", "1")))


class Numbers(Dataset[Any]):
    """Sixty-four items."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 64)


def order(epoch: int) -> list[int]:
    """The same for each epoch, whoever asks; each rank has its part."""
    return torch.randperm(64, generator=torch.Generator().manual_seed(epoch)).tolist()[rank::world]


torch.manual_seed(0)
torch.set_num_threads(1)
model: torch.nn.Module = torch.nn.Linear(4, 1)
if world > 1:
    # Each attempt has a store of its own: in torchrun's, a rank may find the address of one that was killed.
    store = f"file://{os.path.abspath(f'store-{attempt}')}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, epoch, batch = 0, 0, 0
if given.load or restarted:
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step, epoch = state["step"], state["epoch"]
if given.rate:
    optimizer.param_groups[0]["lr"] = given.rate
begun = given.skip if given.load or restarted else 0
while epoch < 3 and (step < given.stop or restarted):
    for value in DataLoader(Numbers(), batch_size=4, sampler=order(epoch)[begun:]):
        loss = (model(value) - value.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == given.save and rank == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "epoch": epoch},
                "state.pt",
            )
        if step >= given.stop and not restarted:
            if given.die and rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if given.die:
                time.sleep(60)  # torchrun ends this rank, and starts both again
            break
    epoch, begun = epoch + 1, 0
