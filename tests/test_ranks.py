"""The rank of this process and its job, by what launchers and torch say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sonde import ranks, system

pytestmark = pytest.mark.usefixtures("bare_environment")


def test_ranks_outside_of_a_job() -> None:
    """Without a launcher nothing is known."""
    assert ranks.current() == (None, None, None)


def test_ranks_of_torchrun_come_before_those_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun inside of a Slurm job has the last word."""
    for name, value in {"SLURM_PROCID": "7", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}.items():
        monkeypatch.setenv(name, value)
    assert ranks.current() == (7, 1, 8)
    for name, value in {"RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert ranks.current() == (3, 0, 4)


@pytest.mark.parametrize("value", ["-1", "x", "1.0", "9" * 30, "٣"])
def test_a_rank_that_is_no_number_is_not_known(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Odd values of the launchers' variables never raise."""
    monkeypatch.setenv("RANK", value)
    assert ranks.current() == (None, None, None)


LIGHTNING = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "123"}


def setenv(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set all of them."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_ranks_of_lightning_come_before_those_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts its ranks itself, also where Slurm has started one task only."""
    setenv(monkeypatch, LIGHTNING | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    assert ranks.current() == (1, 1, 4)


@pytest.mark.parametrize("odd", [{"NODE_RANK": "1"}, {"NODE_RANK": ""}, {"WORLD_SIZE": ""}, {"LOCAL_RANK": "4"}])
def test_ranks_of_lightning_are_not_guessed(monkeypatch: pytest.MonkeyPatch, odd: dict[str, str]) -> None:
    """On other nodes the rank depends on how many ranks a node has, which no variable says."""
    setenv(monkeypatch, LIGHTNING | odd)
    assert ranks.current() == (None, None, None)


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What was learned is forgotten."""
    yield
    ranks.forget()


@pytest.mark.usefixtures("_forgotten")
def test_a_rank_is_learned_once() -> None:
    """Until it is forgotten."""
    assert ranks.learn(1, 2)
    assert not ranks.learn(1, 2)
    assert ranks.current() == (1, None, 2)
    ranks.forget()
    assert ranks.current() == (None, None, None)


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(
    ("variables", "told", "known"),
    [
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, (3, 4), (3, None, 4)),  # they count nodes
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, (3, 4), (3, None, 4)),  # inherited
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (5, 8), (5, 1, 8)),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (1, 2), (5, 1, 8)),  # a group of some of the ranks
        (LIGHTNING | {"NODE_RANK": "1"}, (3, 4), (3, 1, 4)),
    ],
)
def test_what_was_learned_beside_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: tuple[int, int], known: tuple[int | None, ...]
) -> None:
    """Torch is right, unless its world is only a part of the one that is known."""
    setenv(monkeypatch, variables)
    ranks.learn(*told)
    assert ranks.current() == known


def test_ranks_that_lightning_has_started_share_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rank is the parent of the others; other programs that are started alike are other jobs."""
    setenv(monkeypatch, LIGHTNING | {"LOCAL_RANK": "0"})
    command = [sys.executable, "-c", "from sonde import ranks; print(ranks.job().key)"]
    child = subprocess.check_output(command, text=True, env=os.environ | {"LOCAL_RANK": "2"}).strip()
    other = subprocess.check_output(command, text=True).strip()
    job = ranks.job()
    assert job is not None
    assert job.key == child
    assert job.key != other


def test_no_job() -> None:
    """A program started by hand belongs to no job."""
    assert ranks.job() is None


def test_job_of_torchrun_tells_attempts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of one attempt share the key, and all attempts the series; the id is what the user chose."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "train-7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = ranks.job()
    assert first == ranks.job()
    assert first is not None
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    second = ranks.job()
    assert second is not None
    assert second.key != first.key
    assert second.series == first.series
    assert second.id == first.id == "train-7"
    assert ranks.attempt() == 1


@pytest.mark.parametrize("name", ["none", ""])
def test_job_of_torchrun_without_an_id_names_its_launcher(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """torchrun's default id is the same for every job, so the launching process is added."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
    job = ranks.job()
    assert job is not None
    assert job.key.endswith(f"{os.getppid()}-{system.start_ticks(os.getppid())}")


def test_job_of_slurm_needs_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a step has ranks that share a job; a step that was started again is another attempt of it."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert ranks.job() is None
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    first = ranks.job()
    assert first is not None
    assert first.key.startswith("slurm 12 3 ")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert ranks.job() == first
    assert ranks.attempt() == 1000
