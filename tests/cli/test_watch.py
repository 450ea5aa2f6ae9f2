"""`sonde watch` and `sonde deep`: what is meant, and lines where there is no terminal."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sonde import launch
from sonde.cli import main, watch
from sonde.cli.live import screen
from sonde.errors import RunNotFound
from sonde.testing import build_training

NAME = "20250101-000000-train-aaaa"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run of a training."""
    build_training(tmp_path / "runs" / NAME, steps=20)
    return tmp_path / "runs"


@pytest.mark.parametrize("word", [NAME, "train-aaaa", ""])
def test_a_run_is_watched_in_lines(runs: Path, word: str) -> None:
    """By its name, a part of it, or as the newest."""
    result = CliRunner().invoke(main, ["watch", "--dir", str(runs), *([word] if word else [])])
    assert result.exit_code == 0
    assert "| finished | step 19 | 83.3 steps/s" in result.output
    assert len(result.output.splitlines()) == 1


def test_a_path_is_a_run_too(runs: Path) -> None:
    """Wherever it lies."""
    assert "step 19" in CliRunner().invoke(main, ["watch", str(runs / NAME)]).output


@pytest.mark.parametrize(
    "words",
    [("train.py",), ("train-aaaa", "more"), ("-m", "package"), ("python",), ("torchrun", "train.py")],
    ids=" ".join,
)
def test_other_words_are_a_program(runs: Path, words: tuple[str, ...]) -> None:
    """A script, several words, an option of Python, a command on the path."""
    assert watch._run_meant(words, launch.Options(dir=str(runs))) is None


def test_an_existing_file_is_a_program(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a run has that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text("")
    assert watch._run_meant(("train",), launch.Options(dir=str(runs))) is None


def test_a_typo_names_the_nearest_run(runs: Path) -> None:
    """What is neither a run nor a command is an error."""
    with pytest.raises(RunNotFound, match="Did you mean"):
        watch._run_meant(("trian",), launch.Options(dir=str(runs)))


@pytest.mark.parametrize("name", ["watch", "deep"])
def test_no_run_at_all_is_told(tmp_path: Path, name: str) -> None:
    """With exit code 1, and how to start a program instead."""
    result = CliRunner().invoke(main, [name, "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "No runs in" in result.output
    assert f"sonde {name} train.py" in result.output


def test_deep_without_a_program_watches_the_newest_run(runs: Path) -> None:
    """As its help says."""
    assert "| finished | step 19" in CliRunner().invoke(main, ["deep", "--dir", str(runs)]).output
    assert "newest run" in CliRunner().invoke(main, ["deep", "--help"]).output


@pytest.mark.parametrize("name", ["run", "watch", "deep"])
def test_a_program_from_the_standard_input_is_told_how_it_goes(name: str) -> None:
    """It is no option with a typo."""
    done = CliRunner().invoke(main, [name, "-"], input="print(1)")
    assert done.exit_code == 2
    assert f"{name} python - < script.py" in done.stderr
    assert "Did you mean" not in done.stderr


@pytest.mark.parametrize("name", ["watch", "deep"])
def test_a_missing_script_has_the_exit_code_of_python(name: str) -> None:
    """And says what is missing."""
    result = CliRunner().invoke(main, [name, "nothing-here.py"])
    assert result.exit_code == 2
    assert "No such script: nothing-here.py" in result.output


def test_a_wrong_option_is_a_usage_error() -> None:
    """Before anything is started."""
    result = CliRunner().invoke(main, ["watch", "--steps", "x:y", "-c", "print('started')"])
    assert result.exit_code == 2
    assert "started" not in result.output


def test_deep_is_watch_with_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same options, and the layers."""
    asked: list[launch.Options] = []

    def follow(
        words: tuple[str, ...], options: launch.Options, refresh: float | None, plain: bool, *, web: bool
    ) -> int:
        asked.append(options)
        return 0

    deep = importlib.import_module("sonde.cli.deep")
    monkeypatch.setattr(deep, "follow", follow)
    assert CliRunner().invoke(main, ["deep", "--name", "x", "train.py"]).exit_code == 0
    assert asked == [launch.Options(name="x", deep=True)]


def test_output_that_grows_is_read_on(tmp_path: Path) -> None:
    """Each byte once; of much that is there already, the end."""
    file = tmp_path / "output.log"
    file.write_bytes(b"x" * (screen.FIRST + 5))
    output = screen.Output(file)
    assert len(output.read()) == screen.FIRST
    assert output.read() == b""
    with file.open("ab") as growing:
        growing.write(b"more")
    assert output.read() == b"more"
    file.unlink()
    assert output.read() == b""


def test_the_newest_output_of_a_run_is_taken(tmp_path: Path) -> None:
    """Several programs may record into one run; a link is no output."""
    assert screen.output_of(tmp_path) is None
    (tmp_path / "output.log").write_bytes(b"old")
    (tmp_path / "output-7.log").symlink_to("/etc/passwd")
    found = screen.output_of(tmp_path)
    assert found is not None
    assert found.path.name == "output.log"


def test_help_names_both_uses() -> None:
    """RUN or PROGRAM."""
    assert "[RUN | PROGRAM [ARGUMENT]...]" in click.unstyle(CliRunner().invoke(main, ["watch", "--help"]).output)


@pytest.mark.parametrize("command", ["watch", "deep"])
def test_an_option_of_another_command_is_refused_by_the_one_that_was_called(command: str) -> None:
    """It is not suggested either."""
    done = CliRunner().invoke(main, [command, "--quiet", "train.py"])
    assert done.exit_code == 2
    assert f"{command} [OPTIONS]" in done.stderr
    assert "Unknown option --quiet." in done.stderr
    assert "'--quiet'" not in done.stderr


def test_what_keeps_a_program_loads_nothing_that_reads_runs() -> None:
    """The supervisor lives as long as the program, with all that was loaded before it was made."""
    program = "import sys, sonde.cli.watch; print([name for name in sys.modules if name.startswith('sonde.analysis')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("behind", [["--plain"], ["--refresh", "1"], ["--plain", "--refresh", "1"]], ids=" ".join)
@pytest.mark.parametrize("name", ["watch", "deep"])
def test_options_may_stand_behind_a_run(runs: Path, name: str, behind: list[str]) -> None:
    """No program has its name, so they are not meant for one."""
    result = CliRunner().invoke(main, [name, "train-aaaa", *behind, "--dir", str(runs)])
    assert result.exit_code == 0
    assert "| finished | step 19 |" in result.output


def test_options_behind_the_path_of_a_run_are_ours(runs: Path) -> None:
    """They count."""
    result = CliRunner().invoke(main, ["watch", str(runs / NAME), "--refresh", "0.1"])
    assert result.exit_code == 2
    assert "Invalid value for '--refresh'" in result.output


def test_other_words_behind_the_path_of_a_run_are_refused(runs: Path) -> None:
    """They are not passed over."""
    result = CliRunner().invoke(main, ["watch", str(runs / NAME), "more"])
    assert result.exit_code == 2
    assert f"{NAME} is a run, so more does not apply." in result.output


def test_the_wrong_one_of_several_options_is_named(runs: Path) -> None:
    """And not one that exists."""
    result = CliRunner().invoke(main, ["watch", str(runs / NAME), "--plain", "--once"])
    assert result.exit_code == 2
    assert "so --once does not apply." in result.output


def test_a_run_folder_named_like_a_command_is_a_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With options behind it."""
    (runs / NAME).rename(runs / "python")
    monkeypatch.chdir(runs)
    assert "step 19" in CliRunner().invoke(main, ["watch", "python", "--plain"]).output


def test_options_behind_a_word_with_a_typo_are_those_of_a_program(runs: Path) -> None:
    """If they are none of ours."""
    result = CliRunner().invoke(main, ["watch", "--dir", str(runs), "trian", "--epochs", "3"])
    assert result.exit_code == 127
    assert "Command not found: trian." in result.output
