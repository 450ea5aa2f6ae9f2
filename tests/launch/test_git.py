"""Changed files of the repository that a program is started in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.analysis.run import open_run
from sonde.compare.setup import setup_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> None:
    """Run git there, as nobody in particular."""
    who = ["-c", "user.email=a@example.org", "-c", "user.name=a"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, timeout=30)


JOB = """
import os, time
from pathlib import Path
import sonde
sonde.mark("x")
end = time.monotonic() + 40
while time.monotonic() < end and not any(b"dirty" in file.read_bytes() for file in Path(os.environ["SONDE_RUN"]).glob("*/*")):
    time.sleep(0.02)
"""


def recorded(folder: Path) -> Path:
    """Record the program in a folder."""
    command = [sys.executable, "-m", "sonde", "run", "-q", "--dir", str(folder / "runs"), "job.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return max((folder / "runs").iterdir())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a program that lives until the launcher has looked at it."""
    (tmp_path / "job.py").write_text(JOB)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "job.py")
    git(tmp_path, "commit", "-qm", "x")
    return tmp_path


def test_changed_files_are_recorded(repository: Path) -> None:
    """With a digest of what was changed."""
    with (repository / "job.py").open("a") as file:
        file.write("# changed\n")
    with open_run(recorded(repository)) as run:
        found = setup_of(run)
    assert found["git.dirty"] == ["job.py"]
    assert len(found["git.diff"]) == 16
    assert len(found["git.commit"]) == 40


def test_a_clean_repository_says_so(repository: Path) -> None:
    """That is not the same as not knowing."""
    with open_run(recorded(repository)) as run:
        assert setup_of(run)["git.dirty"] == []


def test_a_folder_without_a_repository_has_none(tmp_path: Path) -> None:
    """And git is not asked."""
    (tmp_path / "job.py").write_text("import sonde\nsonde.mark('x')\n")
    path = recorded(tmp_path)
    assert json.loads((path / "run.json").read_text())["git"] is None
    with open_run(path) as run:
        assert "git.dirty" not in setup_of(run)
