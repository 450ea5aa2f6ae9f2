"""Several ranks under torchrun: together they do what one process does, and a failure of one is a failure of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from tests.pipeline.models import pipeline, request, weights

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os
import sys
import torch
from tests.pipeline.models import pipeline, request

torch.set_num_threads(1)
made = pipeline(sys.argv[1], "Plain", sys.argv[2], validate=request())
made.config["data_loader"]["batch_size"] = 2
made.config["train"]["epochs"] = 3
os.write(1, f"folder {made.train()}\\n".encode())  # in one piece: the other rank writes at the same time
"""


def torchrun(folder: Path, dataset: str) -> subprocess.CompletedProcess[str]:
    """Run the program with two ranks that talk through gloo, on this machine alone."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    options = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, str(script), str(folder / "results"), dataset],
        env={**os.environ, "PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_two_ranks_learn_what_one_process_learns(tmp_path: Path) -> None:
    """Of ten items in batches of two, which do not come out even: the same weights, in one folder, visited once."""
    done = torchrun(tmp_path, "Points")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "results").iterdir()
    assert done.stdout.splitlines() == [f"folder {folder}"] * 2
    made = pipeline(tmp_path / "alone", "Plain", validate=request())
    made.config["train"]["epochs"] = 3
    alone = made.train()
    ours, theirs = weights(folder), weights(alone)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    one, other = (json.loads((path / "run.json").read_text())["metrics"] for path in (folder, alone))
    assert all(abs(one[name] - other[name]) < 1e-6 for name in one)
    assert len(torch.load(folder / "latest.pt", weights_only=True)["chance"]) == 2


def test_a_rank_that_fails_ends_the_run(tmp_path: Path) -> None:
    """With its own message, and without hanging."""
    done = torchrun(tmp_path, "Failing")
    assert done.returncode != 0
    assert "the disk is gone" in done.stderr
    assert "folder" not in done.stdout
