"""Long training: every step is recorded, the trainer does not grow, and a step takes little space."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sonde

PROGRAM = """
import json, os, sys, torch, sonde
torch.set_num_threads(1)
steps, folder = int(sys.argv[1]), sys.argv[2]
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
batch = torch.ones(4, 16)
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
session = sonde.init(dir=folder)
train(500)
before = rss()
train(steps - 500)
grown = rss() - before
sonde.finish()
print(json.dumps({"run": str(session.path), "grown": grown}))
"""


@pytest.mark.parametrize("steps", [5_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_all_steps_are_recorded_in_little_space(steps: int, tmp_path: Path) -> None:
    """Less than 1 kB for each, and less than 10 MB more memory, however many there are."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(steps), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1000,
        check=True,
    )
    told = json.loads(done.stdout)
    run = Path(told["run"])
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    with sonde.open_run(run) as found:
        counts = found.sql(
            "select name, count(*), count(distinct step) from events where cat = 'probe' and name in "
            "('forward', 'backward', 'optimizer', 'update', 'loss') group by name"
        ).fetchall()
    assert sorted(counts) == [(name, steps, steps) for name in ("backward", "forward", "loss", "optimizer", "update")]
    assert size < 1000 * steps
    assert told["grown"] < 10_000_000
