"""The watch in real programs: started by `sonde run`, in one rank of two, together with deep mode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.integration.conftest import Programs, programs

from sonde.analysis.run import open_run

__all__ = ["programs"]

RANKS = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Items(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        value = torch.rand(4, generator=torch.Generator().manual_seed(index))
        if index == 21:
            value[2] = float("nan")
        return value, torch.ones(2)

def rank(number, store):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(number), "2"
    import sonde
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=2)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = Items()
    for value, target in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, 2, number, shuffle=False)):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(value), target).backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, args=(os.path.abspath("store"),), nprocs=2)
"""

STOP = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
with torch.no_grad():
    net[1].weight[0, 0] = float("inf")
net(torch.ones(3, 4)).sum().backward()
print("not reached")
"""


def births(programs: Programs) -> list[tuple[int | None, dict[str, Any]]]:
    """Rank and certificate of each birth in the only run, in the order of time."""
    (path,) = programs.dir.iterdir()
    with open_run(path) as run:
        rows = run.sql("select rank, args from events where cat = 'nonfinite' and args is not null order by start_ns")
        return [(rank, json.loads(args)) for rank, args in rows.fetchall()]


def sonde_run(programs: Programs, code: str, *options: str, expected: int = 0, **env: str) -> str:
    """Start a program with `sonde run`; returns what it printed."""
    (programs.folder / "training.py").write_text(code)
    starter = "import runpy, sys; runpy.run_module('sonde', run_name='__main__', alter_sys=True)"
    done = programs.run(starter, "run", *options, "training.py", env=env, code_expected=expected)
    return done.stdout + done.stderr


def test_the_fault_of_one_rank_is_of_that_rank(programs: Programs) -> None:
    """Item 21 is one of rank 1: that says so; rank 0 only sees gradients that are not its own."""
    sonde_run(programs, RANKS, "--watch-nonfinite")
    (rank, facts), *others = births(programs)
    assert (rank, facts["where"], facts["stage"]) == (1, "data", "dataset")
    assert [item["index"] for item in facts["items"]] == [21]
    assert [(other, one["where"], one["producer"]) for other, one in others] == [(0, "gradient", False)]


@pytest.mark.parametrize("deep", [(), ("--deep",)])
def test_stop_ends_the_program(programs: Programs, deep: tuple[str, ...]) -> None:
    """With the error that names the layer, and its exit code."""
    said = sonde_run(programs, STOP, *deep, expected=1, SONDE_WATCH_NONFINITE="stop")
    assert "not reached" not in said
    assert "sonde.errors.NonFinite: First non-finite value:" in said
    assert "layer 1 (Linear)" in said
    ((_, facts),) = births(programs)
    assert (facts["layer"], facts["kind"]) == ("1", "inf")
