"""`sonde pipeline`: the verbs from a shell, with one clear message and the right exit code when something is wrong."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner, Result

from sonde.cli import main
from sonde.cli.pipeline import command
from sonde.pipeline.results.results import open_results

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
SOURCE = 'dataset_class = "RandomDataset"\nfields = ["image"]\nprimary_id_field = "object_id"\n'
FILE = f"""
[model]
name = "Autoencoder"
[train]
epochs = 2
[data_loader]
batch_size = 4
[data_set.RandomDataset]
shape = [1, 8, 8]
size = 10
[data_request.train.data]
{SOURCE}
[data_request.infer.data]
{SOURCE}
[data_request.test.data]
{SOURCE}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a config in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for the programs that are started: small models are faster so
    torch.set_num_threads(1)
    (tmp_path / "my.toml").write_text(FILE)
    return tmp_path


def pipeline(*args: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", *args])


def test_the_verbs_do_what_they_do_in_python(folder: Path) -> None:
    """train, infer and test, one after the other; each prints the folder of its run, or metrics."""
    trained = pipeline("train", "-c", "my.toml")
    assert trained.exit_code == 0, trained.output
    assert (folder / trained.stdout.strip() / "weights.pt").is_file()
    assert "Epoch 2 of 2: loss" in trained.stderr
    inferred = pipeline("infer", "-c", "my.toml")
    assert len(open_results(folder / inferred.stdout.strip())) == 10
    assert f"infer uses the weights of {trained.stdout.strip()}" in inferred.stderr
    assert pipeline("test", "-c", "my.toml").stdout.startswith("loss ")


def test_export_and_engine(folder: Path) -> None:
    """to-onnx and engine."""
    pipeline("train", "-c", "my.toml", "--set", "train.epochs=1")
    exported = pipeline("to-onnx", "-c", "my.toml")
    assert (folder / exported.stdout.strip() / "model.onnx").is_file()
    assert len(open_results(folder / pipeline("engine", "-c", "my.toml").stdout.strip())) == 10


def test_trace_prints_what_was_captured(folder: Path) -> None:
    """And leaves nothing behind."""
    result = pipeline("infer", "-c", "my.toml", "--trace", "2")
    assert result.exit_code == 0
    assert result.stdout.startswith("Trace Stages {\n\tdataset_getter: [")
    assert result.stdout.count("DataProvider__resolve_data(index)") == 2
    assert not (folder / "results").exists()


def test_keys_can_be_set_over_the_file(folder: Path) -> None:
    """As TOML, or as a text without quotes."""
    result = pipeline("train", "-c", "my.toml", "--set", "train.epochs=1", "--set", "general.results_dir=elsewhere")
    assert result.exit_code == 0
    assert result.stdout.startswith("elsewhere/")
    assert "Epoch 1 of 1" in result.stderr


def test_classes_of_the_working_folder_are_found(folder: Path) -> None:
    """By their import path, as with `python -m`."""
    (folder / "own_stars.py").write_text(
        "import numpy as np\n"
        "class Stars:\n"
        "    def __len__(self): return 3\n"
        "    def get_image(self, index): return np.full((1, 8, 8), index, np.float32)\n"
        "    def get_object_id(self, index): return f'star {index}'\n"
    )
    (folder / "my.toml").write_text(FILE.replace('"RandomDataset"', '"own_stars.Stars"'))
    result = pipeline("infer", "-c", "my.toml", "--trace", "3")
    assert result.exit_code == 0, result.output
    assert "'star 2'" in result.stdout


WRONG = {
    "a key with a typo": (("train", "--set", "train.epocs=3"), 1, "Did you mean 'epochs'?"),
    "a value of a wrong type": (("train", "--set", "train.epochs=many"), 1, "train.epochs"),
    "no value": (("train", "--set", "train.epochs"), 1, "is not KEY=VALUE"),
    "a model that is not there": (("train", "--set", "model.name=Autoencodr"), 1, "Did you mean 'Autoencoder'"),
    "nothing trained": (("infer",), 1, "Train first"),
    "nothing exported": (("engine",), 1, "Export one first"),
    "a group that is not there": (("test", "--set", "data_request={}"), 1, "data_request has no group 'test'"),
    "a file in the way": (("train", "--set", "general.results_dir=my.toml"), 1, "results_dir"),
    "no weights there": (("infer", "--set", "infer.weights=nope.pt"), 1, "nope.pt"),
    "a number of items that is none": (("infer", "--trace", "two"), 2, "--trace"),
    "no items": (("infer", "--trace", "0"), 2, "--trace"),
    "nothing to trace": (("to-onnx", "--trace", "2"), 2, "--trace"),
    "a verb with a typo": (("trian",), 2, "train"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_message(folder: Path, case: str) -> None:
    """On the error channel, with a code that is not 0, and no traceback."""
    (verb, *args), code, words = WRONG[case]
    result = pipeline(verb, "-c", "my.toml", *args)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_typo_in_the_file_is_told_with_the_file(folder: Path) -> None:
    """And with the nearest key."""
    (folder / "my.toml").write_text(FILE.replace("epochs", "epocs"))
    result = pipeline("train", "-c", "my.toml")
    assert result.exit_code == 1
    assert "my.toml" in result.stderr
    assert "Did you mean 'epochs'?" in result.stderr


@pytest.mark.parametrize("args", [(), ("-c", "no.toml"), ("-c", ".")])
def test_a_file_is_needed(args: tuple[str, ...]) -> None:
    """Which is a usage error."""
    assert pipeline("train", *args).exit_code == 2


def test_bad_data_is_one_message(folder: Path) -> None:
    """With the field and the item."""
    pipeline("train", "-c", "my.toml", "--set", "train.epochs=1")
    result = pipeline("infer", "-c", "my.toml", "--set", "data_set.RandomDataset.nan_items=1")
    assert result.exit_code == 1
    assert "data.image has NaN" in result.stderr
    assert "item '23'" in result.stderr


# ── as a user has it: real processes ──


def started(*args: str, stderr: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sonde", "pipeline", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_control_c_in_an_epoch_ends_with_130_and_keeps_the_checkpoint(folder: Path) -> None:
    """One line says so. The run can be resumed, and is not what infer takes."""
    process = started("train", "-c", "my.toml", "--set", "train.epochs=1000000", stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(3)]
    assert said[-1].startswith("Epoch 3 of 1000000")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.strip().splitlines()[-1] == "Interrupted. Finished parts are saved."
    assert "Traceback" not in rest
    (run,) = (folder / "results").iterdir()
    assert (run / "latest.pt").is_file()
    resumed = pipeline(
        "train", "-c", "my.toml", "--set", "train.resume=latest", "--set", "train.epochs=1000000", "--trace", "2"
    )
    assert resumed.exit_code == 0
    assert pipeline("infer", "-c", "my.toml").exit_code == 1


def test_a_terminal_shows_a_bar(folder: Path) -> None:
    """With the epoch, how many batches are done, and the loss; it is gone at the end."""
    ours, theirs = pty.openpty()
    config = ("--set", "train.epochs=2", "--set", "data_set.RandomDataset.size=800")
    with started("train", "-c", "my.toml", *config, stderr=theirs) as process:
        os.close(theirs)
        seen = _read(ours, process)
    os.close(ours)
    assert process.returncode == 0
    assert "epoch 1/2" in seen
    assert "/200" in seen
    assert "loss" in seen


def _read(descriptor: int, process: subprocess.Popen[str]) -> str:
    """What comes out of a terminal until the program has ended."""
    seen, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            try:
                seen += os.read(descriptor, 65536)
            except OSError:  # the other side is closed
                break
        elif process.poll() is not None:
            break
    return seen.decode(errors="replace")


@pytest.mark.parametrize("name", list(command.commands))
def test_each_verb_has_an_example_and_documented_options(name: str) -> None:
    """In its help and in the page of commands."""
    section = PAGE.read_text().partition("## sonde pipeline\n")[2].partition("\n## ")[0]
    found = command.commands[name]
    assert f"Example: sonde pipeline {name}" in (found.epilog or "")
    assert f"`sonde pipeline {name}`" in section
    for option in found.params:
        if isinstance(option, click.Option):
            assert option.help
            assert all(f"`{word} " in section for word in option.opts), option.opts
