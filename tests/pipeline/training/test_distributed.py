"""Several ranks under torchrun: together they do what one process does, and a failure of one is a failure of all."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.pipeline.models import pipeline, request, weights

from sonde.pipeline.results.results import open_results
from sonde.pipeline.verbs.infer import _merged

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import os
import sys
import torch
from tests.pipeline.models import pipeline, request

torch.set_num_threads(1)
made = pipeline(sys.argv[1], "Plain", sys.argv[2], validate=request(), infer=request(), test=request())
made.config["data_loader"]["batch_size"] = 2
made.config["train"]["epochs"] = 3
for verb in sys.argv[3:]:
    os.write(1, f"{verb} {getattr(made, verb)()}\\n".encode())  # in one piece: the other rank writes at the same time
"""


def torchrun(folder: Path, dataset: str, *verbs: str) -> subprocess.CompletedProcess[str]:
    """Run verbs with two ranks that talk through gloo, on this machine alone."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    options = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *options,
            str(script),
            str(folder / "results"),
            dataset,
            *verbs,
        ],
        env={**os.environ, "PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the program has printed; Gloo in torch 2.10 prints lines of its own."""
    return [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]


def test_two_ranks_learn_what_one_process_learns(tmp_path: Path) -> None:
    """Of ten items in batches of two, which do not come out even: the same weights, in one folder, visited once."""
    done = torchrun(tmp_path, "Points", "train")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "results").iterdir()
    assert lines(done) == [f"train {folder}"] * 2
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
    done = torchrun(tmp_path, "Failing", "train")
    assert done.returncode != 0
    assert "the disk is gone" in done.stderr
    assert "train" not in done.stdout


def test_two_ranks_share_what_is_inferred_and_tested(tmp_path: Path) -> None:
    """Each item once, in order, in one folder; and the metrics of all items for every rank."""
    made = pipeline(tmp_path / "results", "Plain", validate=request(), infer=request(), test=request())
    made.train()
    alone, metrics = open_results(made.infer()), made.test()
    done = torchrun(tmp_path, "Points", "infer", "test")
    assert done.returncode == 0, done.stderr
    told = sorted(lines(done))
    assert told[0] == told[1]
    assert told[2] == told[3]
    together = open_results(told[0].removeprefix("infer "))
    assert together.ids.tolist() == alone.ids.tolist() == [f"p{n}" for n in range(10)]
    np.testing.assert_allclose(together["data"], alone["data"], rtol=1e-6)
    ours = ast.literal_eval(told[2].removeprefix("test "))
    assert ours == pytest.approx(metrics)
    runs = [path.name.split("-")[2] for path in (tmp_path / "results").iterdir()]
    assert sorted(runs) == ["infer", "infer", "test", "test", "train"]


def test_batches_of_all_ranks_are_put_into_the_order_of_the_items() -> None:
    """Also if some ranks have fewer items than others, or none."""
    whole = np.arange(7)
    parts = [([str(n) for n in whole[rank::3]], {"y": whole[rank::3] * 10}) for rank in range(3)]
    ids, outputs = _merged(list(parts))
    assert ids == [str(n) for n in whole]
    assert outputs["y"].tolist() == (whole * 10).tolist()
    assert _merged([(["0"], {"y": whole[:1]}), None, None])[0] == ["0"]
