"""Commands that read a run of many processes seal it first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.analysis.run import open_run
from sonde.cli import autoseal, main
from sonde.store.folder import boot_id, host
from sonde.testing import BuiltProcess, BuiltRecord, build_run, build_training


@pytest.fixture(autouse=True)
def three_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoseal, "PROCESSES", 2)


def call(*args: str) -> Result:
    result = CliRunner().invoke(main, [*args])
    assert result.exit_code == 0, result.output
    return result


def is_sealed(run: Path) -> bool:
    with open_run(run) as opened:
        return opened.sealed


@pytest.mark.parametrize(
    "command",
    [["report"], ["query", "SELECT count(*) FROM steps"], ["export", "--to", "collapsed"]],
    ids=lambda one: one[0],
)
def test_a_large_run_is_sealed_before_it_is_read(tmp_path: Path, command: list[str]) -> None:
    """And the user is told; of the second call nothing."""
    run = build_training(tmp_path / "run", ranks=3, steps=20)
    word, *rest = command
    more = ["-o", str(tmp_path / "one.txt")] if word == "export" else []
    assert "sealed 3 processes first" in call(word, str(run), *rest, *more).stderr
    assert is_sealed(run)
    assert "sealed" not in call("query", str(run), "SELECT 1 AS one").stderr


def test_a_small_run_stays_as_it_is(tmp_path: Path) -> None:
    """Its report does not wait."""
    run = build_training(tmp_path / "run", ranks=2, steps=20)
    call("report", str(run))
    assert not is_sealed(run)


def test_a_large_run_that_goes_on_is_read_as_it_is(tmp_path: Path) -> None:
    """It cannot be sealed, and nobody needs to know."""
    alive = {"end": None, "boot_id": boot_id(), "pid": os.getpid()}
    processes = [BuiltProcess([BuiltRecord(dur=1)], host=host(), pid=pid) for pid in (1, 2)]
    processes.append(BuiltProcess([BuiltRecord(dur=1)], host=host(), process=alive))
    run = build_run(tmp_path / "run", processes)
    assert "sealed" not in call("query", str(run), "SELECT count(*) FROM events").stderr
    assert not is_sealed(run)
