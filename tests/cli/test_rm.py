"""`sonde rm`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.analysis.seal import seal
from sonde.cli import main
from sonde.pipeline.config import Config
from sonde.pipeline.folder import create
from sonde.store import record
from sonde.store.folder import boot_id
from sonde.testing import WALL_NS, BuiltProcess, BuiltRecord, build_run


def rm(folder: Path, *args: str, input: str = "") -> Result:
    return CliRunner().invoke(main, ["rm", "--dir", str(folder), *args], input=input)


def living() -> BuiltProcess:
    facts = {"boot_id": boot_id(), "end": None, "pid": os.getpid()}
    return BuiltProcess([BuiltRecord(dur=1)], host=os.uname().nodename, process=facts)


def with_rings(path: Path) -> BuiltProcess:
    return BuiltProcess([BuiltRecord(dur=1)], process={"rings": str(path)})


def test_it_lists_and_asks(tmp_path: Path) -> None:
    """What would go is shown, and a yes removes it."""
    run = build_run(tmp_path / "run")
    result = rm(tmp_path, "run", input="y\n")
    assert result.exit_code == 0
    assert "delete 1 run" in result.output
    assert not run.exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_anything_but_yes_removes_nothing(tmp_path: Path, answer: str) -> None:
    """No, nothing and the end of input all keep the run."""
    run = build_run(tmp_path / "run")
    assert rm(tmp_path, "run", input=answer).exit_code == 1
    assert run.exists()


def test_yes_does_not_ask(tmp_path: Path) -> None:
    """`--yes` is for scripts."""
    runs = [build_run(tmp_path / name) for name in ("a1", "b2")]
    assert rm(tmp_path, "a1", "b2", "--yes").exit_code == 0
    assert not any(run.exists() for run in runs)


def test_older_than_spares_the_young(tmp_path: Path) -> None:
    """Only runs that ended longer ago than the age go; broken folders stay."""
    old = build_run(tmp_path / "old")
    young = build_run(tmp_path / "young", start={"mono_ns": 1, "wall_ns": 2 * WALL_NS})
    (tmp_path / "broken").mkdir()
    assert rm(tmp_path, "--older-than", "30d", "--yes").exit_code == 0
    assert (old.exists(), young.exists(), (tmp_path / "broken").exists()) == (False, True, True)


def test_a_killed_run_is_as_old_as_its_last_record(tmp_path: Path) -> None:
    """Sealing it today makes it no younger."""
    facts = {"boot_id": "another boot", "end": None}
    run = build_run(tmp_path / "old", [BuiltProcess([BuiltRecord(dur=1)], host=os.uname().nodename, process=facts)])
    seal(run)
    assert rm(tmp_path, "--older-than", "1h", "--yes").exit_code == 0
    assert not run.exists()


def test_nothing_old_is_no_failure(tmp_path: Path) -> None:
    """With nothing to remove the exit code is 0."""
    result = rm(tmp_path, "--older-than", "1w", "--yes")
    assert (result.exit_code, result.output) == (0, "Nothing to delete.\n")


@pytest.mark.parametrize("args", [[], ["run", "--older-than", "1d"], ["--older-than", "soon"], ["--older-than", "-1d"]])
def test_wrong_use_is_told(tmp_path: Path, args: list[str]) -> None:
    """Neither or both ways of naming runs, and what is no age, are usage errors."""
    build_run(tmp_path / "run")
    assert rm(tmp_path, *args).exit_code == 2


def test_a_folder_that_is_no_run_stays(tmp_path: Path) -> None:
    """Only what Sonde recorded can be removed."""
    (tmp_path / "photos").mkdir()
    result = rm(tmp_path, "photos", "--yes")
    assert result.exit_code == 1
    assert "was not recorded by Sonde" in result.output
    assert (tmp_path / "photos").exists()


def test_the_results_of_a_pipeline_stay(tmp_path: Path) -> None:
    """A pipeline's folder has a run.json of its own beside the trained weights: no command takes it for a recording."""
    trained = create(tmp_path, "train", Config()).path
    (trained / "weights.pt").write_bytes(b"weights")
    other = build_run(tmp_path / "other")
    result = rm(tmp_path, trained.name, "other", "--yes")
    assert result.exit_code == 1
    assert f"{trained} was not recorded by Sonde" in result.stderr
    assert (trained / "weights.pt").exists()
    assert not other.exists()


def test_a_link_stays_with_what_it_points_to(tmp_path: Path) -> None:
    """A symbolic link to a run is refused."""
    run = build_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to(run)
    result = rm(tmp_path, "latest", "--yes")
    assert result.exit_code == 1
    assert "symbolic link" in result.output
    assert run.exists()


def test_links_inside_a_run_are_not_followed(tmp_path: Path) -> None:
    """What a link in a run folder points to survives."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    run = build_run(tmp_path / "runs" / "run")
    (run / "link").symlink_to(tmp_path / "precious")
    assert rm(tmp_path / "runs", "run", "--yes").exit_code == 0
    assert (tmp_path / "precious" / "file").exists()


def test_a_recording_run_is_refused_with_its_pid(tmp_path: Path) -> None:
    """While a process writes into it, a run stays; others that were named go."""
    busy, other = build_run(tmp_path / "busy", [living()]), build_run(tmp_path / "other")
    result = rm(tmp_path, "busy", "other", "--yes")
    assert result.exit_code == 1
    assert str(os.getpid()) in result.output
    assert (busy.exists(), other.exists()) == (True, False)


def test_rings_elsewhere_go_too(tmp_path: Path) -> None:
    """The rings that a run keeps in a folder for temporary files are removed with it."""
    rings = tmp_path / "run-testhost-1000-0.rings"
    rings.write_bytes(record.RINGS_MAGIC + bytes(8))
    build_run(tmp_path / "runs" / "run", [with_rings(rings)])
    assert rm(tmp_path / "runs", "run", "--yes").exit_code == 0
    assert not rings.exists()


@pytest.mark.parametrize("name", ["run-testhost-1000-0.rings", "precious"])
def test_a_lying_process_json_removes_nothing_else(tmp_path: Path, name: str) -> None:
    """A path in process.json that leads to no rings of this run is left alone."""
    target = tmp_path / name
    target.write_bytes(b"my thesis" if name.startswith("run-") else record.RINGS_MAGIC)
    build_run(tmp_path / "runs" / "run", [with_rings(target)])
    assert rm(tmp_path / "runs", "run", "--yes").exit_code == 0
    assert target.exists()
