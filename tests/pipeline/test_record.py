"""Recording: a verb says by itself what it does, in the words of the vocabulary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tests.pipeline.models import pipeline, request

import sonde

ROOT = Path(__file__).resolve().parents[2]


def counted(folder: Path) -> dict[tuple[str, str], int]:
    """How many events there are by category and name, but for those of the probes."""
    (path,) = folder.iterdir()
    rows = (
        sonde.open_run(path).sql("select cat, name, count(*) from events where kind = 'span' group by all").fetchall()
    )
    return {(cat, name): count for cat, name, count in rows}


def test_training_shows_its_parts(tmp_path: Path) -> None:
    """Three batches and one validation of three in each of two epochs."""
    with sonde.init("test", dir=str(tmp_path / "runs")):
        pipeline(tmp_path / "results", validate=request()).train()
    found = counted(tmp_path / "runs")
    wanted = {
        ("pipeline", "train"): 1,
        ("pipeline", "epoch"): 2,
        ("pipeline", "evaluate"): 2,
        ("dataloader", "fetch"): 12,
        ("dataloader", "dataloader.collate"): 12,
        ("device", "transfer"): 12,
        ("compute", "forward"): 12,
        ("compute", "backward"): 6,
        ("compute", "step"): 6,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert found["checkpoint", "capture"] >= 3


def test_events_carry_step_and_epoch(tmp_path: Path) -> None:
    """Counted over the whole run."""
    with sonde.init("test", dir=str(tmp_path / "runs")):
        pipeline(tmp_path / "results").train()
    (path,) = (tmp_path / "runs").iterdir()
    query = "select epoch, step from events where cat = 'compute' and name = 'backward' order by start_ns"
    assert sonde.open_run(path).sql(query).fetchall() == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]


def test_other_verbs_are_recorded_too(tmp_path: Path) -> None:
    """With the passes of test."""
    made = pipeline(tmp_path / "results")
    made.train()
    with sonde.init("test", dir=str(tmp_path / "runs")):
        made.infer()
        made.test()
    found = counted(tmp_path / "runs")
    assert found["pipeline", "test"] == 2
    assert found["compute", "forward"] == found["dataloader", "fetch"] == 9
    assert found["checkpoint", "restart"] == 2
    assert ("compute", "backward") not in found


def test_an_interrupt_from_the_keyboard_keeps_the_checkpoint(tmp_path: Path) -> None:
    """A program that is stopped in the middle of its second epoch can go on from the first."""
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from tests.pipeline.models import pipeline\n"
        "from sonde.pipeline.progress import Silent\n"
        "class Telling(Silent):\n"
        "    def say(self, line):\n"
        "        Path('go').touch()\n"
        "made = pipeline('results', dataset='Slow')\n"
        "made.progress = Telling()\n"
        "made.train()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([sys.executable, str(program)], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        _wait(tmp_path / "waiting", running)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert b"KeyboardInterrupt" in said
    (folder,) = (tmp_path / "results").iterdir()
    assert torch.load(folder / "latest.pt", weights_only=True)["epoch"] == 1
    assert '"status": "interrupted"' in (folder / "run.json").read_text()


def _wait(path: Path, running: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
