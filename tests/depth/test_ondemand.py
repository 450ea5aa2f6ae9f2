"""Depth on demand: `sonde deepen` on a running training, and the setting `adaptive`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.analysis.run import open_run
from sonde.cli import main
from sonde.depth import adaptive
from sonde.store.request import DEEPEN_FILE, DeepRequest, ask_deep, asked_deep
from sonde.testing import build_run, build_training
from sonde.views.report import report
from sonde.views.words import deep_line

# Trains until the file `stop` is there, on as many ranks as it is told; then on for a fixed number of steps from the same start.
PROGRAM = """
import os, sys, time
import torch
import torch.distributed as together
torch.set_num_threads(1)
torch.manual_seed(0)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    together.init_process_group("gloo", init_method=f"file://{os.path.abspath('meeting')}", rank=int(os.environ["RANK"]), world_size=ranks)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses, stopping = [], torch.zeros(1)
while not stopping.item() and len(losses) < 20_000:
    time.sleep(0.02 if len(losses) != 60 else float(sys.argv[1]))
    optimizer.zero_grad()
    loss = model(torch.full((4, 8), len(losses) / 1000)).square().sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    stopping += os.path.exists("stop") or len(losses) == int(sys.argv[2])
    if ranks > 1:
        together.all_reduce(stopping)
torch.save((losses[:30], model.state_dict() if ranks == 1 and sys.argv[2] != "0" else None), "model.pt")
if ranks > 1:
    together.destroy_process_group()
"""


def started(folder: Path, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """The program under `sonde run`, with these variables."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "sonde", "run", "-q", "train.py", *words]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stderr=subprocess.PIPE)


def deepen(folder: Path, *words: str) -> Result:
    """`sonde deepen` in this folder; again, while nothing trains yet."""
    until = time.monotonic() + 60
    while True:
        result = CliRunner().invoke(main, ["deepen", "--dir", str(folder / "sonde-runs"), "--wait", "60", *words])
        early = any(words in result.output for words in ("No runs in", "is starting", "is not training"))
        if not early or time.monotonic() > until:
            return result
        time.sleep(0.2)


@pytest.fixture(scope="module")
def deepened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Two ranks that were recorded deep for a while."""
    folder = tmp_path_factory.mktemp("ranks")
    run = folder / "sonde-runs" / "one"
    build_run(run, ())
    shared = {"WORLD_SIZE": "2", "SONDE_RUN": str(run)}
    programs = [started(folder, "0.02", "0", RANK=str(rank), **shared) for rank in range(2)]
    try:
        result = deepen(
            folder, "one", "--steps", "6", "--layers", "--learning", "--stacks", "--values", "2", "--profile"
        )
    finally:
        (folder / "stop").touch()
        said = [program.communicate(timeout=120)[1] for program in programs]
    assert b"sonde" not in b"".join(said).lower()  # torch's profiler has its say
    assert b"Traceback" not in b"".join(said)
    return run, result


def test_all_ranks_record_the_same_steps_and_go_back(deepened: tuple[Path, Result]) -> None:
    """Layers and learning of six steps, the same on both, and of no other."""
    path, result = deepened
    assert result.exit_code == 0, result.output
    assert result.output.count("layers, values, learning, stacks, profile") == 2
    with open_run(path) as run:
        rows = run.sql(
            "SELECT rank, min(step), max(step), count(DISTINCT step) FROM layers GROUP BY 1 ORDER BY 1"
        ).fetchall()
        learned = run.sql("SELECT rank, min(step), max(step) FROM gradients GROUP BY 1 ORDER BY 1").fetchall()
    (_, first, last, steps), other = rows
    assert (last - first, steps, other[1:]) == (5, 6, (first, last, 6))
    assert learned == [(0, first, last), (1, first, last)]
    assert len(list((path / "profiles").iterdir())) == 2
    assert len([one for one in (path / "blackbox").iterdir() if one.is_dir()]) == 2


def test_the_report_says_what_was_recorded_deep_and_when(deepened: tuple[Path, Result]) -> None:
    """One line for both ranks."""
    with open_run(deepened[0]) as run:
        (one,) = report(run).deepened
    assert one.last == one.first + 5
    assert (
        deep_line(one)
        == f"steps {one.first} to {one.last}: layers, values, learning, stacks, profile (sonde deepen, 2 ranks)"
    )


def test_training_is_the_same_with_adaptive_depth(tmp_path: Path) -> None:
    """An outlier brings layers and stacks of the next steps; the losses and the checkpoint stay the same, bit for bit."""
    plain, deep = tmp_path / "plain", tmp_path / "deep"
    programs = [started(plain, "0.02", "90"), started(deep, "0.9", "90", SONDE_ADAPTIVE="5")]
    assert [program.communicate(timeout=120)[1] for program in programs] == [b"", b""]
    assert (plain / "model.pt").read_bytes() == (deep / "model.pt").read_bytes()
    (path,) = (deep / "sonde-runs").iterdir()
    with open_run(path) as run:
        found = report(run).deepened
        ((steps,),) = run.sql("SELECT count(DISTINCT step) FROM layers").fetchall()
    assert [one.why for one in found][:1] == ["adaptive: an outlier"]
    assert (found[0].parts, steps) == (["layers", "stacks"], 5)


def test_a_run_that_is_starting_has_not_ended(tmp_path: Path) -> None:
    """Its launcher is there, and the program has recorded nothing yet."""
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    command = [sys.executable, "-m", "sonde", "run", "-q", "slow.py"]
    program = subprocess.Popen(command, cwd=tmp_path)
    try:
        until = time.monotonic() + 60
        while not list(tmp_path.glob("sonde-runs/*/*/process.json")) and time.monotonic() < until:
            time.sleep(0.05)
        result = CliRunner().invoke(main, ["deepen", "--dir", str(tmp_path / "sonde-runs")])
    finally:
        program.terminate()
        program.wait(timeout=60)
    assert result.exit_code != 0
    assert "is starting: none of its processes records yet. Try again in a moment." in result.output


def test_nobody_waits_for_steps_of_a_program_that_has_ended(tmp_path: Path) -> None:
    """What it recorded until its end is told."""
    program = started(tmp_path, "0.02", "400")
    result = deepen(tmp_path, "--steps", "100000", "--layers", "--wait", "110")
    assert program.communicate(timeout=120)[1] == b""
    assert result.exit_code == 1
    assert "until its end: layers; it ended before 100000 steps were recorded" in result.output
    assert "may still be recorded" not in result.output


def test_what_cannot_be_deepened_is_said(tmp_path: Path) -> None:
    """A run that has ended, and none."""
    build_training(tmp_path / "sonde-runs" / "over")
    over = CliRunner().invoke(main, ["deepen", "over", "--dir", str(tmp_path / "sonde-runs")])
    assert over.exit_code != 0
    assert "over has ended" in over.output


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"id": 1}', '{"id":"a","steps":0,"parts":["layers"]}', '{"id":"a","steps":5,"parts":["x"]}'],
)
def test_a_request_without_sense_is_none(tmp_path: Path, text: str) -> None:
    """Whoever wrote it."""
    (tmp_path / DEEPEN_FILE).write_text(text)
    assert asked_deep(str(tmp_path)) is None


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All of it."""
    request = DeepRequest("a", 7, ("layers", "stacks"), 3, 40, "because")
    ask_deep(tmp_path, request)
    assert asked_deep(str(tmp_path)) == request


def test_odd_is_what_differs_from_all_before() -> None:
    """A step, a loss and memory, each by its own measure; nothing is odd at the start."""
    odd = adaptive.Odd()
    assert [odd.step(1e9), odd.loss(100.0)] == [None, None]
    assert {odd.step(10e6) for _ in range(40)} | {odd.loss(1.0 + place / 100) for place in range(40)} == {None}
    assert odd.step(25e6) is None
    assert odd.step(100e6) == "an outlier"
    assert odd.loss(3.0) is None
    assert odd.loss(50.0) == "a loss spike"
    assert odd.loss(float("nan")) == "a non-finite loss"
    sizes = [1 << 30, (1 << 30) + (100 << 20), (1 << 30) + (300 << 20)]
    assert [odd.memory(size) for size in sizes] == [None, None, "growing memory"]
    assert [odd.memory(1 << 30), odd.memory(3 << 29)] == [None, "growing memory"]
