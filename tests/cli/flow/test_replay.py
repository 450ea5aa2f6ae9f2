"""`sonde flow replay`: from a shell, with a run that `sonde run` recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sonde.cli import main

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Stars(Dataset):
    plus = 0
    def __len__(self):
        return 80
    def __getitem__(self, index):
        return torch.full((2, 2), float(index + self.plus)), index % 2

class Other(Stars):
    plus = 1

def make_dataset():
    return Stars()

def make_other():
    return Other()

if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, labels in DataLoader(make_dataset(), batch_size=8, shuffle=True):
        model(images).sum().backward()
        optimizer.step()
    print("trained")
"""


def sonde(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, in a folder."""
    command = [sys.executable, "-m", "sonde", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, and a run of it."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "train.py").write_text(SCRIPT)
    ended = sonde(folder, "run", "--blackbox", "train.py")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture
def inside(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in this process, in that folder; what a script changes is put back."""
    monkeypatch.chdir(recorded)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "train", sys)


def test_the_batch_of_a_step_is_rebuilt(recorded: Path) -> None:
    """Its items are printed, and that they are the same; nothing is trained for it."""
    told = sonde(recorded, "flow", "replay", "train.py:make_dataset", "--step", "4", "--out", "batch.npz")
    assert told.returncode == 0, told.stderr
    assert "1 batch, rebuilt from the recorded item order" in told.stdout
    assert "8 items: " in told.stdout
    assert "same data as in the run" in told.stdout
    assert "trained" not in told.stdout
    assert (recorded / "batch.npz").is_file()


def test_other_data_is_told_and_is_an_exit_code(recorded: Path) -> None:
    """A script can go on with it."""
    (run,) = (recorded / "sonde-runs").iterdir()
    told = sonde(recorded, "flow", "replay", run.name, "train.py:make_other", "--step", "4")
    assert told.returncode == 1
    assert "DIFFERENT DATA" in told.stdout
    assert told.stderr == ""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["train.py:make_datasets", "--step", "1"], "Did you mean 'make_dataset'?"),
        (["trai.py:make_dataset", "--step", "1"], "No such file: trai.py"),
        (["train.py:make_dataset", "--step", "77"], "which has steps 0 to 9"),
        (["train.py:make_dataset", "--step", "1", "--rank", "2"], "No rank 2"),
        (["--step", "1"], "Give the dataset as SCRIPT:NAME"),
        (["no-such-run", "train.py:make_dataset", "--step", "1"], "No run 'no-such-run'"),
        (["train.py:make_dataset", "--step", "1", "--out", "train.py"], "train.py exists"),
    ],
)
def test_a_mistake_is_one_clear_message(recorded: Path, inside: None, words: list[str], answer: str) -> None:
    """No traceback."""
    told = CliRunner().invoke(main, ["flow", "replay", *words])
    assert told.exit_code in (1, 2)
    assert answer in told.output
    assert isinstance(told.exception, SystemExit)


def test_a_table_shows_indices_shortened(recorded: Path, inside: None) -> None:
    """The first ones, and how many there are."""
    told = CliRunner().invoke(main, ["show", "batches", "--limit", "3"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert told.output.count(", ... (8)") == 3
