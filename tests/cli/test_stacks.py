"""`sonde stacks`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import sonde
from sonde.cli import main
from sonde.store.folder import boot_id, host
from sonde.store.probe import stacks_signal
from sonde.testing import BuiltProcess, BuiltRecord, build_run

pytestmark = pytest.mark.skipif(not stacks_signal(), reason="there are no real-time signals here")

PROGRAM = """
import sys, torch, sonde
sonde.init(dir=sys.argv[1], name="waits")
sonde.mark("here")
def rest():
    print("ready", flush=True)
    sys.stdin.read()
rest()
print("goes on")
"""


def stacks(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["stacks", "--dir", str(folder), *args])


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that is recorded and waits for its input."""
    pytest.importorskip("torch")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    env["PYTHONPATH"] = str(Path(sonde.__file__).parents[1])
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program
    finally:
        program.kill()
        program.communicate()


def test_it_shows_where_a_program_is_and_the_program_goes_on(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    """Twice: the second answer does not repeat the first."""
    for _ in range(2):
        result = stacks(tmp_path, "--wait", "30")
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"pid {waiting.pid}: ")
        assert result.output.count(" in rest\n") == 1
    out, _ = waiting.communicate(timeout=60)
    assert out == "goes on\n"
    assert waiting.returncode == 0


def test_a_run_that_is_over_is_an_error(tmp_path: Path) -> None:
    """It says so, and names what was written before."""
    run = build_run(tmp_path / "run1", [BuiltProcess([BuiltRecord(dur=1)], host=host())])
    result = stacks(tmp_path)
    assert result.exit_code == 1
    assert "run1 has ended." in result.output
    (run / "stacks-node-7.txt").write_text("Thread 1\n")
    assert "stacks-node-7.txt" in stacks(tmp_path).output


@pytest.mark.parametrize(
    ("where", "problem"), [(host(), "it cannot write stacks"), ("elsewhere", "it runs on another machine")]
)
def test_a_process_that_cannot_be_asked_is_left_alone(tmp_path: Path, where: str, problem: str) -> None:
    """A signal that it does not wait for would end it: this process is the proof."""
    facts = {"end": None, "boot_id": boot_id(), "pid": os.getpid()}
    build_run(tmp_path / "run1", [BuiltProcess([BuiltRecord(dur=1)], host=where, process=facts)])
    result = stacks(tmp_path)
    assert result.exit_code == 1
    assert problem in result.output


def test_a_process_that_does_not_answer_is_told(
    waiting: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that was given."""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    result = stacks(tmp_path, "--wait", "0.1")
    assert result.exit_code == 1
    assert f"pid {waiting.pid}: no response within" in result.output
