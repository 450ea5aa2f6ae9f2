"""The command as a whole: help, version, errors, completion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.analysis.oldform import seal_in_one

from sonde.analysis.seal import seal
from sonde.cli import COMMANDS, main
from sonde.store.folder import host
from sonde.testing import BuiltProcess, BuiltRecord, build_run, build_training
from sonde.version import __version__

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
NAMES = [name for name, _ in COMMANDS]


def loaded(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def sonde(*args: str, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sonde", *args]
    return subprocess.run(command, capture_output=True, text=True, input=input, timeout=60, check=False)


def test_help_lists_all_commands() -> None:
    """`sonde --help` names each command and exits with 0."""
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in NAMES)


def test_help_loads_no_heavy_library() -> None:
    """`sonde --help` starts fast: neither tables nor numbers nor the terminal library are loaded for it."""
    program = (
        "import sys\nfrom sonde.cli import main\nmain(['--help'], standalone_mode=False)\n"
        "print(*sorted({'numpy', 'duckdb', 'rich', 'torch', 'sonde.analysis'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr.strip() == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("command", ["report", "show", "runs"])
def test_every_encoding_can_be_written_to(tmp_path: Path, command: str, encoding: str) -> None:
    """Signs that it does not have become plain ones, and columns stay below each other."""
    build_training(tmp_path / "runs" / "straße-ж")
    done = subprocess.run(
        [sys.executable, "-m", "sonde", command, "--dir", str(tmp_path / "runs")],
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert ("ж" in text) == (encoding == "utf-8")
    if command == "report" and encoding == "ascii":
        assert "###" in text
        assert "finished - " in text


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs, raw and sealed, seen from a working folder that was removed."""
    for name in ("raw", "sealed"):
        build_run(tmp_path / "runs" / name, [BuiltProcess([BuiltRecord("work", dur=5)])])
    seal(tmp_path / "runs" / "sealed")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    return tmp_path / "runs"


@pytest.mark.parametrize("run", ["raw", "sealed"])
@pytest.mark.parametrize("command", ["show", "report"])
def test_runs_are_read_from_a_working_folder_that_was_removed(removed: Path, command: str, run: str) -> None:
    """They lie elsewhere."""
    result = CliRunner().invoke(main, [command, run, "--dir", str(removed)])
    assert (result.exit_code, result.exception) == (0, None)


def test_what_needs_a_working_folder_that_was_removed_says_so(removed: Path) -> None:
    """In one line."""
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "current working directory was deleted" in result.output.splitlines()[-1]


def test_version_is_that_of_the_package() -> None:
    """`sonde --version` prints it."""
    assert CliRunner().invoke(main, ["--version"]).output == f"sonde {__version__}\n"


def test_python_dash_m_is_the_same_command() -> None:
    """`python -m sonde` calls itself sonde."""
    assert "Usage: sonde " in sonde("--help").stdout


def test_an_unknown_command_names_the_nearest() -> None:
    """A typo is a usage error with a hint."""
    result = CliRunner().invoke(main, ["shwo"])
    assert result.exit_code == 2
    assert "Did you mean 'show'?" in result.output


def test_an_unknown_option_is_a_usage_error() -> None:
    """Exit code 2, and no traceback."""
    result = sonde("runs", "--colour")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_list_says_what_the_command_itself_says(name: str) -> None:
    """The short help in the list is the first sentence of the command."""
    assert (loaded(name).help or "").split("\n\n")[0].replace("\n", " ") == dict(COMMANDS)[name]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_an_example(name: str) -> None:
    """The help of each command ends with an example that calls it."""
    assert re.search(rf"Example.*sonde {name}", loaded(name).epilog or "", re.DOTALL)


@pytest.mark.parametrize("name", NAMES)
def test_each_option_has_help_and_is_documented(name: str) -> None:
    """No option without help, and none that the page of commands leaves out."""
    section = PAGE.read_text().partition(f"## sonde {name}\n")[2].partition("\n## ")[0]
    assert "```" in section
    for option in loaded(name).params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help
            assert all(f"`{word}" in section or f" {word}" in section for word in option.opts), option.opts


@pytest.mark.parametrize("name", NAMES)
def test_no_option_shows_the_type_of_its_value(name: str) -> None:
    """`--port PORT`, not `--port INTEGER RANGE`."""
    command = loaded(name)
    for one in [command, *getattr(command, "commands", {}).values()]:
        shown = one.get_help(click.Context(one))
        assert not re.search(r"--\S+ (INTEGER|FLOAT|TEXT|PATH)", shown), shown


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete "), ("zsh", "#compdef sonde"), ("fish", "complete ")])
def test_completion_prints_a_script(shell: str, word: str) -> None:
    """Each shell gets its script."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert word in result.output
    assert "_SONDE_COMPLETE" in result.output


def test_completion_knows_the_runs(tmp_path: Path) -> None:
    """The argument RUN completes to the names of run folders."""
    (tmp_path / "20250101-000000-train-aaaa").mkdir()
    environment = {"_SONDE_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    words = {"COMP_WORDS": f"sonde show --dir {tmp_path} 2025"}
    result = CliRunner().invoke(main, prog_name="sonde", env=environment | words)
    assert "20250101-000000-train-aaaa" in result.output


def test_a_failure_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    """What went wrong stands in one line on the error channel."""
    result = sonde("show", "nothing", "--dir", str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("Error: No run 'nothing'")


def test_a_wrong_setting_is_told_too(tmp_path: Path) -> None:
    """A damaged settings file is named in the message."""
    (tmp_path / "sonde.toml").write_text("cap = [")
    result = subprocess.run(
        [sys.executable, "-m", "sonde", "runs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert "sonde.toml is not valid TOML" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_is_no_failure_with_a_traceback(tmp_path: Path) -> None:
    """`sonde runs | head` ends quietly."""
    for number in range(400):
        (tmp_path / f"broken{number}").mkdir()
        (tmp_path / f"broken{number}" / "run.json").touch()
    command = f"{sys.executable} -m sonde runs --dir {tmp_path} | head -n 1"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr == ""


def test_damage_inside_of_a_sealed_table_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Its footer is whole, so only reading its columns shows it."""
    run = seal_in_one(build_training(tmp_path / "run"))
    table = run / "events.parquet"
    content = bytearray(table.read_bytes())
    data = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:data] = b"\xff" * (data - 4)
    table.write_bytes(content)
    done = sonde("show", str(run), "events")
    assert done.returncode == 1
    assert "Error: Cannot read a table: " in done.stderr
    assert "restore the run folder from a backup." in done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_warns_that_a_part_is_missing(tmp_path: Path) -> None:
    """It names the part and the ranks that the answer lacks."""
    run = build_training(tmp_path / "run", ranks=2)
    seal(run)
    (run / "parts" / f"{host()}-0000" / "steps.parquet").unlink()
    for command in (["query", str(run), "SELECT count(*) FROM steps"], ["report", str(run)], ["show", str(run)]):
        done = sonde(*command)
        assert done.returncode == 0
        assert f"Warning: run: Part {host()}-0000 cannot be used: its steps.parquet is missing." in done.stderr
        assert "ranks 0 to 1" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(tmp_path: Path, closed: str) -> None:
    """As under some schedulers: a command ends as it would."""
    build_training(tmp_path / "runs" / "first")
    line = f"exec {sys.executable} -m sonde runs --dir {tmp_path}/runs {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_the_locale_c_can_be_written_to(tmp_path: Path) -> None:
    """Python takes another way for characters that ASCII does not have in it."""
    build_training(tmp_path / "runs" / "first")
    command = [sys.executable, "-m", "sonde", "report", "--dir", str(tmp_path / "runs")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONIO"))}
    env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "###" in done.stdout
