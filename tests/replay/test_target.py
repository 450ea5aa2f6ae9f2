"""What `script.py:name` means: a dataset, a model, a function that makes one; or a clear word on why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.errors import ReplayError
from sonde.replay.target import load_data

SCRIPT = """
import neighbour

class Data:
    def __getitem__(self, index):
        return index

def make_dataset():
    return Data()

def fails():
    raise ValueError("no such survey")

def nothing():
    return None

ready = [1, 2, 3]
number = 5

if __name__ == "__main__":
    raise SystemExit("the main part must not run")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A script with a neighbour that it imports."""
    monkeypatch.setattr("sys.path", ["", *sys.path])
    (tmp_path / "neighbour.py").write_text("")
    path = tmp_path / "some_script.py"
    path.write_text(SCRIPT)
    yield path
    for name in ("neighbour", "some_script"):
        sys.modules.pop(name, None)


def test_a_function_or_a_dataset_in_a_script(script: Path) -> None:
    """The script is imported, and its main part does not run."""
    assert load_data(f"{script}:make_dataset")[7] == 7
    assert load_data(f"{script}:ready") == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("make_datset", "Did you mean 'make_dataset'?"),
        ("fails", r"fails\(\) of .* fails: ValueError: no such survey"),
        ("nothing", "returns a NoneType, not a dataset"),
        ("number", "is a int, not a dataset or a function"),
    ],
)
def test_a_name_that_is_none(script: Path, name: str, answer: str) -> None:
    """It says what is there."""
    with pytest.raises(ReplayError, match=answer):
        load_data(f"{script}:{name}")


@pytest.mark.parametrize("target", ["train.py", ":x", "train.py:", "nowhere.py:make"])
def test_a_target_that_is_none(target: str) -> None:
    """The form is told, or that the file is not there."""
    with pytest.raises(ReplayError, match=r"No such file|does not name a dataset"):
        load_data(target)


def test_a_script_that_cannot_be_imported(tmp_path: Path) -> None:
    """A mistake in it is told."""
    (tmp_path / "wrong.py").write_text("def (")
    with pytest.raises(ReplayError, match=r"Cannot import .*wrong.py: SyntaxError"):
        load_data(f"{tmp_path / 'wrong.py'}:make")
