"""Checkpoints: a resumed run ends where the whole one does, bit for bit; a wrong file is told, whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pipeline.models import equal, pipeline, request, weights

from sonde.errors import CheckpointError, ConfigError
from sonde.pipeline.training import checkpoint


def tuned(results: Path, **more: Any) -> Any:
    """A pipeline in which much has to be kept: momentum, a scheduler, dropout, augmentation, validation."""
    made = pipeline(results, train=request("Augmented", augment=True), validate=request(), **more)
    made.config["optimizer"]["name"] = "torch.optim.AdamW"
    made.config["torch.optim.AdamW"] = {"lr": 0.05}
    made.config["scheduler"]["name"] = "torch.optim.lr_scheduler.StepLR"
    made.config["torch.optim.lr_scheduler.StepLR"] = {"step_size": 1, "gamma": 0.7}
    return made


def everything(folder: Path) -> dict[str, Any]:
    """All that a checkpoint holds."""
    found: dict[str, Any] = torch.load(folder / "latest.pt", weights_only=True)
    return found


def same(one: Any, other: Any) -> bool:
    """Are two values of a checkpoint the same, bit for bit?"""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_resumed_run_ends_where_the_whole_one_does(tmp_path: Path, workers: int, accumulate: int) -> None:
    """Weights, optimizer, scheduler, random numbers, best epoch: bit for bit."""
    made = tuned(tmp_path)
    made.config["data_loader"]["num_workers"] = workers
    made.config["train"]["accumulate"] = accumulate
    made.config["train"]["epochs"] = 3
    whole = made.train()
    made.config["train"]["epochs"] = 1
    first = made.train()
    made.config["train"]["epochs"] = 3
    made.config["train"]["resume"] = str(first)
    rest = made.train()
    assert rest != first
    assert equal(weights(rest), weights(whole))
    assert same(everything(rest), everything(whole))


def test_latest_is_the_newest_run_with_a_checkpoint(tmp_path: Path) -> None:
    """Whatever its end."""
    made = pipeline(tmp_path)
    made.train()
    newest = made.train()
    assert checkpoint.checkpoint_file("latest", tmp_path) == newest / "latest.pt"


def test_latest_without_a_run_is_told(tmp_path: Path) -> None:
    """With the folder, and how to begin."""
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = "latest"
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        made.train()
    assert not list(tmp_path.iterdir())


def test_nothing_left_to_do_is_told(tmp_path: Path) -> None:
    """Before a folder is made."""
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = str(made.train())
    with pytest.raises(ConfigError, match="Set more epochs"):
        made.train()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", ["empty", "half", "text", "noise", "code"])
def test_a_corrupt_checkpoint_is_told(tmp_path: Path, damage: str) -> None:
    """One clear message with the file; no code in it is run, and no folder is made."""
    made = pipeline(tmp_path)
    path = made.train() / "latest.pt"
    content = path.read_bytes()
    versions = {"empty": b"", "half": content[: len(content) // 2], "text": b"no checkpoint", "noise": bytes(5000)}
    if damage == "code":
        torch.save({"format": checkpoint.FORMAT, "model": _Bomb()}, path)
    else:
        path.write_bytes(versions[damage])
    made.config["train"]["resume"] = str(path)
    with pytest.raises(CheckpointError, match=r"latest\.pt"):
        made.train()
    assert not (tmp_path / "ran").exists()
    assert len(list(tmp_path.iterdir())) == 1


class _Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def test_a_checkpoint_of_another_model_is_told(tmp_path: Path) -> None:
    """With the model's name."""
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = str(made.train())
    made.config["model"]["name"] = "tests.pipeline.models.Old"
    with (
        pytest.warns(DeprecationWarning, match="to_tensor"),
        pytest.raises(CheckpointError, match="do not match the current configuration of Old"),
    ):
        made.train()


def test_another_optimizer_than_that_of_the_checkpoint_is_told(tmp_path: Path) -> None:
    """Its state does not fit."""
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = str(made.train())
    made.config["train"]["epochs"] = 5
    made.config["optimizer"]["name"] = "torch.optim.LBFGS"
    with pytest.raises((CheckpointError, TypeError)):
        made.train()


def test_weights_alone_cannot_be_resumed(tmp_path: Path) -> None:
    """The message says which file can."""
    made = pipeline(tmp_path)
    made.config["train"]["resume"] = str(made.train() / "weights.pt")
    with pytest.raises(CheckpointError, match=r"latest\.pt"):
        made.train()


@pytest.mark.parametrize("file", ["weights.pt", "best.pt", "latest.pt", ""])
def test_weights_are_taken_from_folders_checkpoints_and_files(tmp_path: Path, file: str) -> None:
    """For all verbs that only need the weights."""
    folder = pipeline(tmp_path).train()
    model = torch.nn.Module()
    model.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    used = checkpoint.load_weights(model, folder / file)
    assert used == folder / (file or "weights.pt")
    if file != "best.pt":
        assert equal(dict(model.state_dict()), weights(folder))


def test_a_failed_write_leaves_the_earlier_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half-written stands in its place, nor beside it."""
    folder = pipeline(tmp_path).train()
    before = (folder / "latest.pt").read_bytes()

    def full(_content: Any, stream: Any) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(folder / "latest.pt", torch.nn.Linear(1, 1), checkpoint.Progressed(9))
    assert (folder / "latest.pt").read_bytes() == before
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
