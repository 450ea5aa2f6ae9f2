"""`sonde report` of a program that still trains, and of one that was killed: as a card, as JSON and as a page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STEPS = 40
TIMEOUT = 120
PROGRAM = f"""
import time
import sonde
sonde.init(name="live")
for step in range({STEPS}):
    with sonde.trace_step():
        with sonde.ai.compute.forward:
            time.sleep(0.002)
with sonde.trace_step():
    with sonde.span("the last thing"):
        print("ready", flush=True)
        time.sleep({TIMEOUT})
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has made its steps, and goes on for ever; its run is in `runs`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SONDE")}
    line = [sys.executable, "-c", PROGRAM]
    environment = {**kept, "SONDE_DIR": str(tmp_path / "runs")}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
        started.kill()


def sonde(folder: Path, *words: str) -> str:
    """What a `sonde report` of the only run prints, and that it ends well and says nothing else."""
    line = [sys.executable, "-m", "sonde", "report", "--dir", str(folder / "runs"), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def reports(folder: Path) -> tuple[str, dict[str, object], str]:
    """The card, the JSON and the page of the only run."""
    page = folder / "report.html"
    found = json.loads(sonde(folder, "--json", "--html", str(page)))
    return sonde(folder), found, page.read_text()


def test_a_run_that_is_going_on_has_a_report(tmp_path: Path, program: subprocess.Popen[str]) -> None:
    """With all steps that it has made by then; it is not disturbed."""
    card, found, page = reports(tmp_path)
    assert found["run"]["state"] == "recording"  # type: ignore[index]
    assert found["steps"]["count"] + found["steps"]["warmup"] == STEPS  # type: ignore[index]
    assert "running · " in card
    assert f"{STEPS} steps" in card
    assert "running" in page
    assert program.poll() is None


def test_a_run_that_was_killed_has_a_report(tmp_path: Path, program: subprocess.Popen[str]) -> None:
    """`kill -9` costs not a step, and is the verdict."""
    program.send_signal(signal.SIGKILL)
    program.wait(TIMEOUT)
    card, found, page = reports(tmp_path)
    assert found["run"]["state"] == "died"  # type: ignore[index]
    assert found["verdict"]["kind"] == "KILLED"  # type: ignore[index]
    assert found["steps"]["count"] + found["steps"]["warmup"] == STEPS  # type: ignore[index]
    assert "KILLED" in card
    assert "KILLED" in page
