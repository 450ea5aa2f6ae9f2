"""From "why is training slow or failing?" to the item, layer or rank, with a real client, over real faults."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.faults import cases, trial
from tests.mcp.agent import MOST_CALLS, investigate

from sonde.mcp.answer import MOST_BYTES

soak = pytest.mark.soak


class Fault(NamedTuple):
    """A fault of the benchmark, and what is to be named."""

    case: str
    names: str  # a regular expression


def _slow(case: str, names: str) -> object:
    return pytest.param(Fault(case, names), marks=soak, id=case)


FAULTS = [
    pytest.param(Fault("crashed_worker", r"item 777\b"), id="crashed_worker"),
    _slow("items_few", r"item 42\b"),
    _slow("items_workers", r"item 17\b"),
    _slow("straggler_input_2", r"rank 1\b.*slow|slow.*rank 1\b"),
    _slow("straggler_compute_2", r"rank 1\b.*slow|slow.*rank 1\b"),
    _slow("straggler_other_2", r"rank 1\b.*slow|slow.*rank 1\b"),
    _slow("killed_rank_2", r"rank 1\b.*(signal|killed)"),
    _slow("crashed_rank_2", r"Rank 1 \(process \d+\) crashed"),
]


def _named(name: str) -> cases.Case:
    return next(one for one in cases.CASES if one.name == name)


def _check(answers: list[str], names: str) -> None:
    assert len(answers) <= MOST_CALLS
    assert all(len(answer.encode()) <= MOST_BYTES for answer in answers)
    assert re.search(names, "\n".join(answers)), "\n\n".join(answers)


@pytest.mark.parametrize("fault", FAULTS)
def test_four_calls_lead_to_the_item_or_rank(fault: Fault, tmp_path: Path) -> None:
    """The client follows only ids and hints of the answers."""
    trial.run(_named(fault.case), tmp_path / "case")
    _check(asyncio.run(investigate(tmp_path / "case" / "runs")), fault.names)


NAN_LAYER = """
import torch

class Bad(torch.nn.Module):
    def forward(self, x):
        return torch.log(x - 100)

model = torch.nn.Sequential(torch.nn.Linear(4, 4), Bad(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = torch.utils.data.DataLoader(torch.rand(64, 4), batch_size=4)
for x in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
WIDE_LAYER = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 1500), torch.nn.Linear(1500, 1500), torch.nn.Linear(1500, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for x in torch.utils.data.DataLoader(torch.rand(160, 8), batch_size=8):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def _record(folder: Path, script: str, *options: str) -> None:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "sonde", "run", "--quiet", "--dir", str(folder / "runs"), *options, "train.py"]
    subprocess.run(command, cwd=folder, env=trial.environment(), check=True, timeout=120, stdin=subprocess.DEVNULL)


def test_four_calls_lead_to_the_layer_that_made_the_first_nan(tmp_path: Path) -> None:
    """The layer by its name in the model."""
    _record(tmp_path, NAN_LAYER, "--watch-nonfinite")
    _check(asyncio.run(investigate(tmp_path / "runs")), r"layer `?1`?|`1`|\b1 \(Bad\)")


@soak
def test_four_calls_lead_to_the_item_that_holds_a_nan(tmp_path: Path) -> None:
    """It was in the data."""
    _record(tmp_path, _named("nonfinite_item").path.read_text(), "--watch-nonfinite")
    _check(asyncio.run(investigate(tmp_path / "runs")), r"item 1700\b")


@soak
def test_four_calls_lead_to_the_costliest_layer(tmp_path: Path) -> None:
    """In a run of `sonde run --deep`."""
    _record(tmp_path, WIDE_LAYER, "--deep")
    _check(asyncio.run(investigate(tmp_path / "runs")), r"1 Linear: forward")


@soak
def test_four_calls_lead_to_the_rank_that_hangs(tmp_path: Path) -> None:
    """While it hangs."""
    program = trial.start(_named("hung_rank_2"), tmp_path)
    try:
        until = time.monotonic() + trial.HANGS
        answers: list[str] = []
        while time.monotonic() < until and not any("HUNG" in one for one in answers):
            time.sleep(trial.LOOK)
            if list(tmp_path.glob("runs/*/*/process.json")):
                answers = asyncio.run(investigate(tmp_path / "runs"))
        _check(answers, r"rank 1\b")
        assert "File " in answers[2]
    finally:
        trial.end(program)
