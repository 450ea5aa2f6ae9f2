"""The list of runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.diagnosis.building import replaced

from sonde.analysis.run import open_run
from sonde.analysis.seal import seal
from sonde.store.folder import boot_id
from sonde.testing import (
    START_NS,
    WALL_NS,
    BuiltProcess,
    BuiltRecord,
    build_process,
    build_run,
    build_training,
    synthetic_run,
)
from sonde.views.outcome import Outcome, make_outcome, read_outcome
from sonde.views.runs import RunEntry, list_runs, with_outcomes

HERE = os.uname().nodename
SECOND = 1_000_000_000


def start(hours: int) -> dict[str, int]:
    return {"mono_ns": 1, "wall_ns": WALL_NS + hours * 3_600_000_000_000}


def only(folder: Path) -> RunEntry:
    (found,) = list_runs(folder).runs
    return found


def test_the_newest_run_comes_first(tmp_path: Path) -> None:
    """Runs are ordered by their start, not by the names of their folders."""
    for name, hours in (("a", 2), ("b", 3), ("c", 1)):
        build_run(tmp_path / name, start=start(hours))
    assert [one.id for one in list_runs(tmp_path).runs] == ["b", "a", "c"]


def test_a_missing_folder_has_no_runs(tmp_path: Path) -> None:
    """A folder that was never made is an empty list."""
    assert list_runs(tmp_path / "none").runs == []


def test_a_broken_run_hides_no_other(tmp_path: Path) -> None:
    """A folder without a readable run.json is listed with what is wrong with it."""
    build_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text('{"na')
    found = {one.id: one for one in list_runs(tmp_path).runs}
    assert found["good"].problem is None
    assert "damaged" in str(found["bad"].problem)


def test_only_recordings_are_listed(tmp_path: Path) -> None:
    """A folder of something else is no run, even with a run.json in it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "run.json").write_text('{"verb": "train", "status": "completed", "sonde": "0.1.0"}')
    assert list_runs(tmp_path).runs == []


@pytest.mark.parametrize(
    "content", ["[]", '"x"', '{"start": 7}', '{"start": {"wall_ns": "x"}, "name": 5}', "\0" * 100, "{" * 100_000]
)
def test_no_content_of_run_json_is_an_error(tmp_path: Path, content: str) -> None:
    """Whatever stands in run.json, the folder is listed."""
    build_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(content)
    assert only(tmp_path).id == "run"


def test_links_and_hidden_folders_are_no_runs(tmp_path: Path) -> None:
    """A link to a run is not listed beside it."""
    build_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to("run")
    (tmp_path / ".doctor").mkdir()
    assert only(tmp_path).id == "run"


def of(**process: object) -> BuiltProcess:
    return BuiltProcess([BuiltRecord(dur=5)], host=HERE, process={"boot_id": boot_id(), **process})


@pytest.mark.parametrize(
    ("process", "state"),
    [
        (of, "ended"),
        (lambda: of(end=None, pid=os.getpid()), "recording"),
        (lambda: of(end=None, pid=2**22 + 5), "died"),
        (lambda: of(end=None, boot_id="another boot"), "died"),
        (lambda: of(end=None, host="elsewhere"), "unknown"),
    ],
)
def test_the_state_is_that_of_the_processes(tmp_path: Path, process: Callable[[], BuiltProcess], state: str) -> None:
    """Recording while one of them runs, died if one did not say that it ended."""
    build_run(tmp_path / "run", [process()])
    assert only(tmp_path).state == state


def test_a_run_without_processes_is_unknown(tmp_path: Path) -> None:
    """A run in which nothing was recorded has the same state in every command."""
    path = build_run(tmp_path / "run", [])
    assert (only(tmp_path).state, only(tmp_path).ended, only(tmp_path).dur_ns) == ("unknown", "unknown", None)
    assert (open_run(path).state, str(open_run(path).ending)) == ("unknown", "unknown")


def test_what_came_of_a_run_is_kept_in_its_folder(tmp_path: Path) -> None:
    """A report writes it, and so does the list itself; a list that may take no time shows only what was kept."""
    path = build_training(tmp_path / "run", steps=30, loss=lambda step: 2.0 - step / 100)
    assert with_outcomes(list_runs(tmp_path), -1).runs[0].outcome is None
    made = with_outcomes(list_runs(tmp_path), 60).runs[0].outcome
    assert made == Outcome("COMPUTE_BOUND", "info", 30, made.p50_ns if made else None, 1.71)
    assert with_outcomes(list_runs(tmp_path), -1).runs[0].outcome == made
    assert stat.S_IMODE((path / "outcome.json").stat().st_mode) == 0o600


def test_steps_of_all_attempts_are_counted(tmp_path: Path) -> None:
    """As in the report: those that were made again once."""
    path = synthetic_run(tmp_path / "run", ranks=2, steps=40, restarts=1, repeated=5)
    assert make_outcome(path).steps == 40


def test_what_was_kept_of_a_run_that_has_changed_does_not_count(tmp_path: Path) -> None:
    """Another process may join a run that had ended."""
    path = build_training(tmp_path / "run", steps=30)
    make_outcome(path)
    build_process(path, BuiltProcess([BuiltRecord(dur=1)], pid=4711))
    assert read_outcome(path) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"stamp": 1, "verdict": 5}', '{"stamp": null}'])
def test_damage_in_what_was_kept_is_no_error(tmp_path: Path, content: str) -> None:
    """Then it is made again."""
    path = build_training(tmp_path / "run", steps=30)
    (path / "outcome.json").write_text(content)
    assert read_outcome(path) is None


def test_only_the_newest_runs_are_shown(tmp_path: Path) -> None:
    """How many are left out is said."""
    for hours in range(3):
        build_run(tmp_path / str(hours), start=start(hours))
    found = with_outcomes(list_runs(tmp_path, 2), 0)
    assert ([one.id for one in found.runs], found.left_out) == (["2", "1"], 1)


def test_the_duration_reaches_from_the_start_to_the_last_end(tmp_path: Path) -> None:
    """A run lasts until the last of its processes ended."""
    ends = [{"mono_ns": 1, "wall_ns": WALL_NS + n, "reason": "finish", "exception": None} for n in (5, 7)]
    build_run(tmp_path / "run", [BuiltProcess(pid=n, process={"end": end}) for n, end in enumerate(ends)])
    assert only(tmp_path).dur_ns == 7


@pytest.mark.parametrize("spilled", [0, 1])
def test_a_run_that_was_killed_lasts_until_its_last_record(tmp_path: Path, spilled: int) -> None:
    """Not until somebody touched its files: not even if it is sealed later, or copied."""
    died = {"boot_id": boot_id(), "end": None, "pid": 2**22 + 5}
    made = [BuiltRecord(start=START_NS, dur=SECOND), BuiltRecord(start=START_NS + 3 * SECOND, dur=SECOND)]
    built = [BuiltProcess(made, host=HERE, process=died, spilled=spilled), BuiltProcess(pid=4)]
    run = build_run(tmp_path / "run", built)
    assert (only(tmp_path).state, only(tmp_path).dur_ns) == ("died", 4 * SECOND)
    seal(run)
    for path in run.rglob("*"):
        os.utime(path)
    assert (only(tmp_path).state, only(tmp_path).dur_ns) == ("died", 4 * SECOND)


def test_a_killed_run_without_records_lasts_as_long_as_its_files_tell(tmp_path: Path) -> None:
    """There is nothing else; and sealing it makes it no longer."""
    died = {"boot_id": boot_id(), "end": None, "pid": 2**22 + 5}
    run = build_run(tmp_path / "run", [BuiltProcess(host=HERE, process=died)])
    for path in run.glob("*/*"):
        os.utime(path, ns=(0, WALL_NS + 7 * SECOND))
    assert only(tmp_path).dur_ns == 7 * SECOND
    seal(run)
    assert only(tmp_path).dur_ns == 0


def test_a_thousand_runs_are_listed_without_reading_records(tmp_path: Path) -> None:
    """Listing opens only the small files: unreadable records do not matter."""
    for number in range(1000):
        run = build_run(tmp_path / f"run{number}", [BuiltProcess()] if number == 0 else [])
    (run / "events.seg").mkdir()
    found = list_runs(tmp_path)
    assert len(found.runs) == 1000


def test_a_program_that_replaced_itself_runs_once(tmp_path: Path) -> None:
    """Both programs have a folder, and the process is one."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    built = replaced(BuiltProcess([BuiltRecord(dur=1)], os.getpid(), HERE), (ticks, ticks))
    here = {"boot_id": boot_id(), "end": None}
    build_run(tmp_path / "run", [one._replace(process={**(one.process or {}), **here}) for one in built])
    assert only(tmp_path).running == [os.getpid()]
