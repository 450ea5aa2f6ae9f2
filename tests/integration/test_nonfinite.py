"""The watch in real programs, mostly with the black box: each fault under `sonde run`, in one rank of two, with deep mode."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.conftest import Programs, programs

from sonde.analysis.run import open_run
from sonde.diagnosis.diagnose import diagnose

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
    for value, target in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, 2, number, seed=3)):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(value), target).backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(rank, args=(os.path.abspath("store"),), nprocs=2, start_method="fork")
"""

# One model after the other, each with one fault in its third step; the last one has none, though its sums overflow.
FAULTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

class Items(IterableDataset):
    def __init__(self, fault):
        self.fault = fault
    def __iter__(self):
        for index in range(12):
            value = torch.rand(4, generator=torch.Generator().manual_seed(index)) + 0.5
            if index == 9:  # of the third batch, at position 1
                value = {"pixel": value.clone().index_fill_(0, torch.tensor(2), float("nan"))}.get(self.fault, value * SCALE[self.fault])
            yield {"x": value, "id": f"star {index}"}

SCALE = {"pixel": 1, "log": -1, "middle": 1e30, "backward": 0, "tuple": -1, "place": -1, "overflow": 2e38}

class Square(nn.Module):
    def forward(self, x):
        return x * x
class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)
class Tuple(nn.Module):
    def forward(self, x):
        return x, {"scores": torch.log(x.sum(1))}
class InPlace(nn.Module):
    def forward(self, x):
        return x.sqrt_()
class Root(nn.Module):
    def forward(self, x):
        return x.pow(2).sum(1, keepdim=True).sqrt()
class Take(nn.Module):
    def forward(self, both):
        return both[1]["scores"].unsqueeze(1)
class Mean(nn.Module):
    def forward(self, x):
        return (x * 1e-38).mean(1, keepdim=True)

def plain():
    layer = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4))
    return layer

PARTS = {
    "pixel": [nn.Linear(4, 1)], "log": [Log(), nn.Linear(4, 1)], "middle": [plain(), Square(), nn.Linear(4, 1)],
    "backward": [plain(), Root(), nn.Linear(1, 1)], "tuple": [plain(), Tuple(), Take(), nn.Linear(1, 1)],
    "place": [plain(), InPlace(), nn.Linear(4, 1)], "overflow": [plain(), Mean(), nn.Linear(1, 1)],
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for fault, parts in PARTS.items():
        net = nn.Sequential(*parts)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)
        how = {"num_workers": 1, "multiprocessing_context": "spawn"} if fault == "pixel" else {}
        for batch in DataLoader(Items(fault), batch_size=4, **how):
            optimizer.zero_grad()
            net(batch["x"]).mean().backward()
            optimizer.step()
"""

# Two workers read every other item; the NaN is in item 9, the fifth of the second one.
PARTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Items(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 16, worker.num_workers):
            yield torch.full((4,), float("nan") if index == 9 else 1.0)

if __name__ == "__main__":
    net = nn.Linear(4, 1)
    for batch in DataLoader(Items(), batch_size=2, num_workers=2):
        net(batch).sum().backward()
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


def dumped(programs: Programs) -> list[tuple[int | None, dict[str, Any]]]:
    """Rank and certificate of each dump, in the order in which they were written."""
    (path,) = programs.dir.iterdir()
    found = [json.loads((one / "dump.json").read_text()) for one in sorted((path / "blackbox").iterdir())]
    return [(one["rank"], one["nonfinite"]) for one in found]


def test_each_fault_is_located_with_layer_step_and_item(programs: Programs) -> None:
    """In the run, in the dumps, and in the report, which tells of the first; an iterable dataset, once in a spawned worker."""
    sonde_run(programs, FAULTS, "-q", "--blackbox", "--watch-nonfinite")
    found = [facts for _, facts in births(programs)]
    assert [(one["where"], one["type"], one["stage"], one["kind"], one["step"]) for one in found] == [
        ("data", None, "dataset", "nan", 2),
        ("forward", "Log", None, "nan", 5),
        ("forward", "Square", None, "inf", 8),
        ("backward", "Root", None, "nan", 11),
        ("forward", "Tuple", None, "nan", 14),
        ("forward", "InPlace", None, "nan", 17),
    ]
    assert [[(item["index"], item["id"]) for item in one["items"]] for one in found] == [[(9, "star 9")]] * 6
    assert not any(one["evaluation"] for one in found)
    assert [facts for _, facts in dumped(programs)] == found
    (path,) = programs.dir.iterdir()
    with open_run(path) as run:
        (finding,) = [one for one in diagnose(run).findings if one.kind == "NON_FINITE"]
    assert "item 9 (id star 9) of batch 2, already in the dataset's output" in finding.why


def test_the_fault_of_one_rank_is_of_that_rank(programs: Programs) -> None:
    """The rank that got item 21 says so first; the other one only sees gradients that are not its own."""
    sonde_run(programs, RANKS, "-q", "--blackbox", "--watch-nonfinite")
    (rank, facts), *others = births(programs)
    assert (facts["where"], facts["stage"]) == ("data", "dataset")
    assert [item["index"] for item in facts["items"]] == [21]
    assert [(other, one["where"], one["producer"]) for other, one in others] == [(1 - (rank or 0), "gradient", False)]
    assert sorted(dumped(programs), key=str) == sorted([(rank, facts), *others], key=str)
    (path,) = programs.dir.iterdir()
    with open_run(path) as run:
        tables = [run.items(step=facts["step"], rank=each).project('"index"') for each in (rank, 1 - (rank or 0))]
        own, other = ([index for (index,) in table.fetchall()] for table in tables)
    assert own[facts["items"][0]["position"]] == 21
    assert (len(own), len(other), set(own) & set(other)) == (4, 4, set())


def test_an_item_that_a_worker_has_counted_is_told_so(programs: Programs) -> None:
    """Each of several workers that read an iterable dataset has an item of that number."""
    sonde_run(programs, PARTS, "-q", "--watch-nonfinite")
    (path,) = programs.dir.iterdir()
    with open_run(path) as run:
        (finding,) = [one for one in diagnose(run).findings if one.kind == "NON_FINITE"]
    assert "item 4 (counted by worker 1) of batch 5, already in the dataset's output" in finding.why


def test_stop_ends_the_program(programs: Programs) -> None:
    """With the error that names the layer, and its exit code; deep mode follows the same calls."""
    said = sonde_run(programs, STOP, "--deep", expected=1, SONDE_WATCH_NONFINITE="stop")
    assert "not reached" not in said
    assert "sonde.errors.NonFinite: First infinity:" in said
    assert "layer `1` (Linear)" in said
    ((_, facts),) = births(programs)
    assert (facts["layer"], facts["kind"], facts["parameters"]) == ("1", "inf", ["weight"])
