"""Whether the ranks of one run hold the same model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.probes.training import model, sgd, train

from sonde.analysis.run import open_run
from sonde.compare.ranks import RankCheck, compare_ranks
from sonde.errors import SondeError
from sonde.testing import record

SCRIPT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(6):
    if step == 3 and rank == 1 and "spoil" in sys.argv:
        with torch.no_grad():
            net.module[1].weight[0, 0] += 0.5
    optimizer.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def checked(folder: Path, *arguments: str) -> RankCheck:
    """Two ranks of DDP, recorded with fingerprints of each step."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), *arguments]
    sonde = [sys.executable, "-m", "sonde", "run", "--dir", str(folder / "runs"), "--name", "two", "--fingerprint", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*sonde, "--", sys.executable, *torchrun], check=True, timeout=240, env=environment, capture_output=True
    )
    (path,) = (one for one in (folder / "runs").iterdir() if one.is_dir() and not one.name.startswith("."))
    with open_run(path) as run:
        return compare_ranks(run)


def test_ranks_that_train_together_hold_the_same_model(tmp_path: Path) -> None:
    """Although each has its own batches, and so its own outputs."""
    found = checked(tmp_path)
    assert (found.identical, found.steps, found.ranks) == (True, 6, [0, 1])


def test_a_parameter_that_only_one_rank_changed_is_named(tmp_path: Path) -> None:
    """With the step and the rank."""
    found = checked(tmp_path, "spoil")
    first = found.first_difference
    assert first is not None
    assert (found.identical, first.step, first.rank) == (False, 3, 1)
    assert "of rank 1 differs" in found.text


def test_a_run_without_fingerprints_says_how_to_get_them(tmp_path: Path) -> None:
    """Nothing recorded is not the same as identical."""
    with record(dir=str(tmp_path)) as recorded:
        net = model()
        train(net, sgd(net), 2)
    with open_run(recorded.path) as run, pytest.raises(SondeError, match="sonde run --fingerprint"):
        compare_ranks(run)


def test_a_rank_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With those that are."""
    with record(dir=str(tmp_path), fingerprint=1) as recorded:
        net = model()
        train(net, sgd(net), 2)
    with open_run(recorded.path) as run, pytest.raises(SondeError, match=r"Rank 7 .* Ranks with fingerprints: 0"):
        compare_ranks(run, [0, 7])
