"""A training that goes on from a checkpoint: what it did with the items, the steps, the learning rate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sonde.analysis.run import open_run
from sonde.compare.divergence import compare_numbers
from sonde.compare.resume import Resume, restarts, resumes

SCRIPT = Path(__file__).with_name("resuming.py")


def record(folder: Path, name: str, *words: str) -> Path:
    """Record the script in a folder, and return the run."""
    command = [sys.executable, "-m", "sonde", "run", "-q", "--name", name, "--dir", "runs", str(SCRIPT), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs").glob(f"*-{name}-*")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that stopped at step 25, with a checkpoint after step 22: six batches into the second epoch."""
    path = tmp_path_factory.mktemp("resume")
    record(path, "first", "--save", "22", "--stop", "25")
    return path


def checked(folder: Path, name: str, *words: str) -> Resume:
    """The check of a second run."""
    (first,) = (folder / "runs").glob("*-first-*")
    with open_run(first) as a, open_run(record(folder, name, "--load", *words)) as b:
        (found,) = resumes(a, b)
    return found


def test_a_right_resume_skips_and_repeats_nothing(folder: Path) -> None:
    """The steps after the checkpoint are made again."""
    found = checked(folder, "right", "--skip", "24")
    assert (found.checkpoint_step, found.lost_steps) == (21, 3)
    assert (found.repeated, found.skipped) == (0, 0)
    assert found.rate_before == found.rate_after == 0.05
    assert "No item was skipped or repeated." in found.text


def test_a_resume_that_starts_the_epoch_again_repeats_items(folder: Path) -> None:
    """The commonest mistake."""
    found = checked(folder, "again")
    assert (found.repeated, found.skipped) == (24, 0)
    assert any("24 items of this epoch were trained on before the checkpoint and again" in line for line in found.text)


def test_a_resume_that_goes_too_far_skips_items(folder: Path) -> None:
    """Two batches of them."""
    found = checked(folder, "far", "--skip", "32")
    assert (found.repeated, found.skipped) == (0, 8)


def test_another_learning_rate_is_told(folder: Path) -> None:
    """It was not restored."""
    found = checked(folder, "rate", "--skip", "24", "--rate", "0.5")
    assert (found.rate_before, found.rate_after) == (0.05, 0.5)


def test_two_runs_that_have_nothing_to_do_with_each_other_are_not_checked(folder: Path) -> None:
    """The second read no checkpoint."""
    (first,) = (folder / "runs").glob("*-first-*")
    with open_run(first) as a, open_run(record(folder, "other", "--stop", "20")) as b:
        assert resumes(a, b) == []


def test_a_resumed_run_is_compared_with_an_uninterrupted_one(folder: Path) -> None:
    """Though it counts its steps from 0: its losses say where it begins."""
    whole, rest = record(folder, "whole"), record(folder, "rest", "--load", "--skip", "24")
    with open_run(whole) as a, open_run(rest) as b:
        found = compare_numbers(a, b)
    assert (found.identical, found.shift, found.steps) == (True, 22, 26)


def restarted(folder: Path, *command: str) -> list[Resume]:
    """The restarts inside one recorded run."""
    done = subprocess.run(
        [sys.executable, "-m", "sonde", "run", "-q", "--dir", "runs", "--", *command],
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs").iterdir()
    with open_run(path) as run:
        return restarts(run)


@pytest.mark.parametrize(("skip", "repeated", "skipped"), [("16", 0, 0), ("0", 32, 0)], ids=["right", "again"])
def test_ranks_that_were_killed_and_started_again_by_torchrun_are_checked(
    tmp_path: Path, skip: str, repeated: int, skipped: int
) -> None:
    """Both attempts are in one run; only rank 0 saves, as programs with DDP do."""
    words = ["--save", "12", "--stop", "15", "--die", "--skip", skip]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
    ]
    found = restarted(tmp_path, *torchrun, str(SCRIPT), *words)
    assert [(one.rank, one.checkpoint_step) for one in found] == [(0, 11), (1, 11)]
    assert found[0].lost_steps == 3
    assert {(one.repeated, one.skipped) for one in found} == {(repeated, skipped)}


def test_a_program_that_a_script_starts_again_is_checked(tmp_path: Path) -> None:
    """Two processes, one after the other, under one `sonde run`."""
    python = f"{sys.executable} {SCRIPT}"
    (found,) = restarted(tmp_path, "sh", "-c", f"{python} --save 22 --stop 25; {python} --load --skip 32")
    assert (found.checkpoint_step, found.lost_steps, found.repeated, found.skipped) == (21, 3, 0, 8)


def test_a_run_without_restarts_has_none(folder: Path) -> None:
    """Though it saved a checkpoint."""
    (first,) = (folder / "runs").glob("*-first-*")
    with open_run(first) as run:
        assert restarts(run) == []
