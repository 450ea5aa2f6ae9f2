"""Records eight small ranks for real, once on a machine.

The ranks train one model together over gloo, each with a loader worker, items, times and names of its own.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

from sonde import environment, session
from sonde.ai.tree import ai
from sonde.testing.building import build_run

RANKS = 8
STEPS = 24
BATCH = 4
SLOW_MS = 4  # a slow item takes so much longer
VERSION = 2  # to be raised when other ranks would be recorded


class _Pairs:
    """A dataset of pairs; every so many items one is slow, in each rank another one."""

    def __init__(self, rank: int) -> None:
        self._every = 31 + rank

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import torch

        time.sleep(0.0002 + (SLOW_MS / 1000 if index % self._every == 0 else 0))
        return torch.full((16,), index / 4096), torch.full((1,), index / 8192)


def main(folder: str) -> int:
    """Record all ranks into a new run folder."""
    import torch  # before the fork: all ranks share it
    import torch.distributed
    from torch.utils.data import DataLoader  # noqa: F401

    torch.set_num_threads(1)
    build_run(folder, ())
    fork: Any = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=_train, args=(rank, folder)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(120)
    return int(any(one.exitcode != 0 for one in ranks))


def _train(rank: int, folder: str) -> None:
    import torch
    import torch.distributed as together
    from torch.utils.data import DataLoader

    environment.publish_run(folder)
    meeting = f"file://{Path(folder).resolve()}.meeting"
    together.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    session.init()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 / (rank + 1))
    augment = ai.data.preprocess.derive(name=f"augment_{rank}")
    loader: Any = DataLoader(_Pairs(rank), batch_size=BATCH, num_workers=1)  # type: ignore[arg-type]
    for step, (inputs, targets) in enumerate(loader):
        with augment:
            noisy = inputs + 0.1 * torch.randn_like(inputs)
        loss = torch.nn.functional.mse_loss(model(noisy), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        together.all_reduce(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))
        optimizer.step()
        if step + 1 == STEPS:
            break
    del loader
    together.destroy_process_group()
    session.finish()
