"""`sonde runs`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from sonde.cli import main
from sonde.testing import WALL_NS, build_run


def runs(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["runs", "--dir", str(folder), *args], env={"COLUMNS": "150"})


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    """One line for each run below the header."""
    for number in range(3):
        build_run(tmp_path / f"run{number}", start={"mono_ns": 1, "wall_ns": WALL_NS + number})
    lines = runs(tmp_path).output.splitlines()
    assert lines[0].split() == ["run", "verdict", "ended", "steps", "median", "step", "loss", "ran", "started", "size"]
    assert [line.split()[0] for line in lines[1:]] == ["run2", "run1", "run0"]


def test_no_run_says_how_to_make_one(tmp_path: Path) -> None:
    """An empty folder gives a hint and exit code 1."""
    result = runs(tmp_path)
    assert result.exit_code == 1
    assert "sonde.init()" in result.output


def test_a_broken_run_is_listed_with_its_problem(tmp_path: Path) -> None:
    """The others stay listed, and the exit code is 0."""
    build_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text('{"na')
    result = runs(tmp_path)
    assert result.exit_code == 0
    assert "run.json is damaged" in " ".join(result.output.split())  # lines are broken where they are long
    assert "good" in result.output


def test_json_holds_the_same(tmp_path: Path) -> None:
    """`--json` prints the view as data."""
    build_run(tmp_path / "run")
    found = json.loads(runs(tmp_path, "--json").output)
    assert found["runs"][0]["id"] == "run"
    assert found["runs"][0]["ended"] == "finished"


def test_a_narrow_terminal_keeps_the_end_of_the_id(tmp_path: Path) -> None:
    """It is the part that one types; how the run ended stands beside it."""
    build_run(tmp_path / "20251115-211200-train-3f2a")
    result = CliRunner().invoke(main, ["runs", "--dir", str(tmp_path)], env={"COLUMNS": "40"})
    assert result.output.splitlines()[1].split()[0].endswith("-train-3f2a")
    assert "finished" in result.output


def test_output_into_a_pipe_is_plain(tmp_path: Path) -> None:
    """No colours where no terminal is."""
    build_run(tmp_path / "run")
    assert "\x1b" not in runs(tmp_path).output


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """A folder whose name holds an escape sequence is shown with escapes."""
    build_run(tmp_path / "evil\x1b[2J")
    result = runs(tmp_path)
    assert "evil" in result.output
    assert "\x1b" not in result.output
