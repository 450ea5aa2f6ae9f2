"""What is run, and what the run is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sonde.errors import CommandRefused
from sonde.launch.command import command_of, name_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a script, a package, and a file that cannot be run."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "start.sh").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [["train.py", "-x"], ["-m", "package", "-x"], ["-c", "pass"], ["package"], ["./train.py"]],
    ids=lambda words: words[0],
)
def test_what_python_runs_is_run_by_this_python(words: list[str]) -> None:
    """Scripts, modules, code and folders with a __main__.py."""
    assert command_of(words) == [sys.executable, *words]


def test_other_commands_stand_as_they_are() -> None:
    """Whatever is on the path, with its arguments."""
    assert command_of(["sh", "-c", "true", "train.py"]) == ["sh", "-c", "true", "train.py"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "Nothing to run"),
        ([""], 2, "Nothing to run"),
        (["-m"], 2, "missing after -m"),
        (["trian.py"], 2, "Did you mean train.py?"),
        (["missing/train.py"], 2, "folder missing does not exist"),
        (["empty"], 2, "without a __main__.py"),
        (["./start.sh"], 126, "sonde run bash ./start.sh"),
        (["start.sh"], 126, "sonde run bash start.sh"),
        (["train"], 127, "Did you mean the script train.py?"),
        (["no-such-command"], 127, "Command not found: no-such-command"),
    ],
)
def test_what_cannot_be_run_is_told_with_the_code_of_a_shell(words: list[str], code: int, told: str) -> None:
    """The message says what to do."""
    with pytest.raises(CommandRefused, match=r".") as caught:
        command_of(words)
    assert caught.value.exit_code == code
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "folder/train.py", "other.py"], "train"),
        (["python", "-m", "package.train"], "package.train"),
        (["torchrun", "--nproc-per-node", "2", "train.py", "--epochs", "3"], "train"),
        (["python", "-m", "torch.distributed.run", "train.py"], "train"),
        (["accelerate", "launch", "train.py"], "train"),
        (["/usr/bin/bash", "start.sh"], "bash"),
        (["python", "-c", "pass"], "python"),
        (["python", "package/"], "python"),
    ],
)
def test_a_run_has_the_name_of_what_trains(command: list[str], name: str) -> None:
    """Not that of the launcher in front of it."""
    assert name_of(command) == name


def test_a_folder_that_cannot_be_read_gives_no_hint(folder: Path) -> None:
    """A missing script is told all the same."""
    with pytest.raises(CommandRefused, match="No such script"):
        command_of([os.path.join(str(folder), "gone", "x.py")])
