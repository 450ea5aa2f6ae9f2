"""Trackers beside real programs, with the real libraries, offline."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.trackers.offline import records, values

from sonde.trackers.follow import PAGE

TRAIN = """
import sys, time
import torch
{begin}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    time.sleep(0.01)
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{end}
print("trained")
"""


def run(
    folder: Path, *words: str, begin: str = "", end: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """A training in a folder; it must train, whatever its trackers do."""
    (folder / "train.py").write_text(TRAIN.format(begin=begin, end=end))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SONDE", "WANDB", "MLFLOW"))}
    env |= {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", **variables}
    line = [sys.executable, *(["-m", "sonde", "run", *words] if words else []), "train.py"]
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    return done


def scalars(folder: Path, name: str) -> list[int]:
    read = EventAccumulator(str(folder))
    read.Reload()
    return [one.step for one in read.Scalars(name)]


def test_one_line_in_a_script_feeds_tensorboard(tmp_path: Path) -> None:
    """Each step is there when the program has ended, and the report."""
    line = 'import sonde.trackers.tensorboard; print(sonde.trackers.tensorboard.attach("board"), file=sys.stderr)'
    done = run(tmp_path, begin=line)
    assert done.stderr.startswith("True")
    assert scalars(tmp_path / "board", "sonde/step/backward_ms") == list(range(40))
    assert "</html>" in (tmp_path / "board" / PAGE).read_text("utf-8")


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # of the library that reads MLflow's database
def test_sonde_run_feeds_all_trackers_at_once(tmp_path: Path) -> None:
    """W&B has history, summary and artefact, and nothing of the program's code, packages or output."""
    done = run(tmp_path, "--to-wandb", "--to-mlflow", "--to-tensorboard", "board")
    assert sorted(line for line in done.stderr.splitlines() if line.startswith("sonde: the report is in ")) == [
        f"sonde: the report is in {name}" for name in ("mlflow", "tensorboard", "wandb")
    ]
    assert scalars(tmp_path / "board", "sonde/step/forward_ms") == list(range(40))
    found = list(records(tmp_path))
    history = [values(one.item) for kind, one in found if kind == "history"]
    assert [one["sonde/step/number"] for one in history] == list(range(40))
    summary: dict[str, Any] = {}
    for kind, one in found:
        summary |= values(one.update) if kind == "summary" else {}
    assert summary["sonde/steps/count"] == 37
    assert summary["sonde/verdict/kind"]
    (artefact,) = [one for kind, one in found if kind == "artifact"]
    assert [one.path for one in artefact.manifest.contents] == [PAGE]
    assert not {"files", "output", "output_raw", "stats", "environment"} & {kind for kind, _ in found}
    assert mlflow_steps(tmp_path) == list(range(40))


def mlflow_steps(folder: Path) -> list[int]:
    """The steps in the newest run of MLflow, whose report must be there."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (found,) = client.search_runs(
        [one.experiment_id for one in client.search_experiments()], order_by=["start_time DESC"], max_results=1
    )
    assert found.data.tags["sonde.verdict.kind"]
    assert found.data.metrics["sonde/steps/count"] == 37
    assert [one.path for one in client.list_artifacts(found.info.run_id, "sonde")] == [f"sonde/{PAGE}"]
    return [one.step for one in client.get_metric_history(found.info.run_id, "sonde/step/total_ms")]


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # of the library that reads MLflow's database
def test_one_line_joins_the_active_run_of_mlflow(tmp_path: Path) -> None:
    """Beside the program's own metrics; and the program ends its run itself."""
    begin = "import mlflow; mlflow.start_run(); mlflow.log_metric('mine', 1)\nimport sonde.trackers.mlflow; sonde.trackers.mlflow.attach()"
    run(tmp_path, begin=begin, end="mlflow.end_run()")
    assert mlflow_steps(tmp_path) == list(range(40))


@pytest.mark.soak
def test_one_line_takes_the_project_of_the_active_run_of_wandb(tmp_path: Path) -> None:
    """In a run of its own, so that the program's run keeps its steps."""
    begin = (
        "import wandb; run = wandb.init(project='mine', group='night', dir='own')\n"
        "import sonde.trackers.wandb; sonde.trackers.wandb.attach()"
    )
    (tmp_path / "own").mkdir()
    run(tmp_path, begin=begin, end="run.log({'loss': 1}); run.finish()")
    kinds = []
    for one in (tmp_path / "own").glob("wandb/offline-run-*"):
        alone = tmp_path / one.name / "wandb"
        alone.mkdir(parents=True)
        one.rename(alone / one.name)
        found = list(records(alone.parent))
        (about,) = [record for kind, record in found if kind == "run"]
        kinds.append((about.project, about.run_group, about.job_type, sum(kind == "history" for kind, _ in found)))
    assert sorted(kinds) == [("mine", "night", "", 1), ("mine", "night", "sonde", 40)]


@pytest.mark.soak
@pytest.mark.parametrize("how", ["run", "attach"])
def test_trackers_that_fail_do_not_reach_the_training(tmp_path: Path, how: str) -> None:
    """A folder that cannot be made, a server that is not there, a mode that does not exist."""
    lines = "import sonde.trackers.{0}; sonde.trackers.{0}.attach({1})"
    names = (("wandb", ""), ("mlflow", ""), ("tensorboard", '"/proc/nope"'))
    given: tuple[str, ...] = ("--to-wandb", "--to-mlflow", "--to-tensorboard", "/proc/nope") if how == "run" else ()
    begin = "" if given else "\n".join(lines.format(*one) for one in names)
    done = run(
        tmp_path, *given, begin=begin, WANDB_MODE="nonsense", MLFLOW_TRACKING_URI="http://127.0.0.1:1",
        MLFLOW_HTTP_REQUEST_MAX_RETRIES="1",
    )  # fmt: skip
    assert {line.split(":")[1] for line in done.stderr.splitlines() if "not in" in line} == {
        " not in wandb", " not in mlflow", " not in tensorboard",
    }  # fmt: skip


@pytest.mark.soak
def test_a_killed_program_has_its_report(tmp_path: Path) -> None:
    """Its tracker learns of the end by itself, and says how it ended."""
    line = 'import sonde.trackers.tensorboard; sonde.trackers.tensorboard.attach("board")'
    (tmp_path / "train.py").write_text(TRAIN.format(begin=line, end="import os; os.kill(os.getpid(), 9)"))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, timeout=100, check=False)
    assert done.returncode == -9
    until = time.monotonic() + 60
    while not (tmp_path / "board" / PAGE).exists():
        assert time.monotonic() < until
        time.sleep(0.2)
    assert "KILLED" in (tmp_path / "board" / PAGE).read_text("utf-8")


@pytest.mark.soak
def test_a_missing_library_is_one_sentence(tmp_path: Path) -> None:
    """Before the program runs."""
    (tmp_path / "wandb.py").write_text("raise ImportError")
    (tmp_path / "train.py").write_text("print('ran')")
    hide = "import sys, importlib.util as u; find = u.find_spec; u.find_spec = lambda name, *a: None if name == 'wandb' else find(name, *a)\n"
    code = hide + "from sonde.cli import main; main(['run', '--to-wandb', 'train.py'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'sonde-ml[wandb]'" in done.stderr
