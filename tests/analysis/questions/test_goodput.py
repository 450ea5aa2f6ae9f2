"""What the attempts of a job that was started again achieved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sonde.analysis.questions.goodput import Goodput, goodput
from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.store import probe
from sonde.store.record import MARK
from sonde.testing import MS, START_NS, WALL_NS, BuiltProcess, BuiltRecord, build_run, synthetic_run, training_processes

if TYPE_CHECKING:
    from pathlib import Path


def of(path: Path) -> Goodput | None:
    with open_run(path) as run:
        return goodput(run)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 steps in three attempts; the second and the third go 7 steps back."""
    return synthetic_run(tmp_path_factory.mktemp("many") / "run", ranks=4, hosts=2, steps=90, restarts=2, repeated=7)


def test_steps_that_a_later_attempt_made_again_do_not_count(restarted: Path) -> None:
    found = of(restarted)
    assert found is not None
    first, second, third = found.attempts
    assert (found.steps, found.repeated) == (90, first.steps + second.steps + third.steps - 90)
    assert (first.repeated, third.repeated) == (first.last_step - second.first_step + 1, 0)  # type: ignore[operator]
    assert [one.ranks for one in found.attempts] == [4, 4, 4]


def test_all_time_is_told(restarted: Path) -> None:
    """Steps that counted, repeated ones, time between attempts, and the rest are the whole."""
    found = of(restarted)
    assert found is not None
    assert found.between_ns == sum(one.waited_ns or 0 for one in found.attempts) > 40_000_000_000
    parts = (found.steps_ns or 0) + (found.repeated_ns or 0) + found.between_ns + found.other_ns
    assert parts == pytest.approx(found.whole_ns, rel=0.01)
    assert found.share == (found.steps_ns or 0) / found.whole_ns


def test_a_sealed_run_has_the_same_attempts(restarted: Path) -> None:
    before = of(restarted)
    seal(restarted, force=True)
    assert of(restarted) == before


def test_a_job_that_was_not_started_again_has_none(tmp_path: Path) -> None:
    assert of(build_run(tmp_path / "run", training_processes(ranks=2))) is None


def twice(path: Path, *later: BuiltRecord, attempts: tuple[int, int] = (0, 1)) -> Path:
    """Two attempts that both number their steps from 0. `later`: what the second begins with."""
    found: list[BuiltProcess] = []
    for number, attempt in enumerate(attempts):
        (one,) = training_processes(steps=10)
        start = {"mono_ns": START_NS, "wall_ns": WALL_NS + number * 60_000 * MS}
        boot = f"boot {number}"
        records = [*(later if number else ()), *(record._replace(seq=0, parent=0) for record in one.records)]
        about = {**(one.process or {}), "rank": 0, "world_size": 1, "attempt": attempt, "start": start, "boot_id": boot}
        found.append(one._replace(pid=1000 + number, records=records, process={**about, "end": None}))
    return build_run(path, found)


def test_an_attempt_from_the_beginning_repeats_all(tmp_path: Path) -> None:
    """Nothing was read from a checkpoint: all steps of the first attempt were in vain."""
    found = of(twice(tmp_path / "run"))
    assert found is not None
    assert (found.steps, found.repeated) == (10, 10)


def test_steps_numbered_anew_after_a_checkpoint_say_nothing(tmp_path: Path) -> None:
    """Nobody knows which of them were repeated."""
    loaded = BuiltRecord(probe.LOADED, probe.PROBE, kind=MARK, start=START_NS, args={"file": "a.pt"})
    found = of(twice(tmp_path / "run", loaded))
    assert found is not None
    assert (found.share, found.steps, found.repeated) == (None, None, None)
    assert [one.repeated for one in found.attempts] == [None, 0] or [one.repeated for one in found.attempts] == [
        None
    ] * 2


def test_attempts_of_slurm_are_numbered_from_0(tmp_path: Path) -> None:
    """Each requeue counts as a thousand there."""
    found = of(twice(tmp_path / "run", attempts=(1000, 2000)))
    assert found is not None
    assert [one.number for one in found.attempts] == [0, 1]
