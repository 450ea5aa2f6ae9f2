"""The end of `sonde run`: the card of the report on the error channel, made by a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.launching import HERE, run, script, start

if TYPE_CHECKING:
    from tests.integration.conftest import Programs

STEPS = """
import sys
sonde = sys.modules["sonde"]
for step in range(20):
    with sonde.trace_step():
        with sonde.span("work"):
            pass
print("the program's own words")
raise SystemExit(3)
"""


def test_the_card_stands_at_the_end_of_the_error_channel(programs: Programs) -> None:
    """The output of the program is left alone, and so is its exit code."""
    done = run(programs, str(script(programs.folder, STEPS)), code=3)
    assert done.stdout == "the program's own words\n"
    assert "why" in done.stderr
    assert "ABOUT THIS RECORDING" in done.stderr
    assert f"sonde report runs/{programs.only.name}" in done.stderr


def test_quiet_silences_it(programs: Programs) -> None:
    """Not a word."""
    done = run(programs, "--quiet", str(script(programs.folder, STEPS)), code=3)
    assert done.stderr == ""


def test_a_program_that_recorded_nothing_has_no_card(programs: Programs) -> None:
    """There is nothing to tell of it."""
    done = run(programs, "echo", "hello")
    assert done.stdout == "hello\n"
    assert "ABOUT THIS RECORDING" not in done.stderr


def test_the_launcher_loads_nothing_heavy_for_it(programs: Programs) -> None:
    """What the report needs is loaded by another process."""
    code = """
import sys
from sonde.cli.run import run
from sonde.launch import Options
code = run((sys.argv[1],), Options(), disable=False, quiet=False)
print(code, sorted({"duckdb", "numpy", "rich"} & set(sys.modules)))
"""
    path = script(programs.folder, HERE)
    line = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(
        line,
        env=programs.environment(None),
        cwd=programs.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "0 []\n"
    assert "INSUFFICIENT_DATA" in done.stderr


def test_a_signal_that_was_meant_for_the_program_does_not_end_the_drawing(programs: Programs) -> None:
    """As `timeout` sends it: to the launcher, and then to the whole group."""
    code = HERE + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
    program = start(programs, str(script(programs.folder, code)), start_new_session=True)
    assert program.stdout is not None
    program.stdout.readline()
    program.terminate()
    time.sleep(0.05)  # the launcher has the first one, and looks whether the program has it too
    os.killpg(program.pid, signal.SIGTERM)
    _, err = program.communicate(timeout=240)
    assert program.returncode == 128 + signal.SIGTERM
    assert "could not be made" not in err
    assert "ABOUT THIS RECORDING" in err


def test_a_signal_during_the_drawing_ends_it(programs: Programs) -> None:
    """Who wants to be done is not to wait; the exit code is the program's all the same."""
    program = start(programs, str(script(programs.folder, STEPS)))
    end = time.monotonic() + 240
    while not drawing(program.pid):
        assert time.monotonic() < end
        time.sleep(0.005)
    program.terminate()
    _, err = program.communicate(timeout=240)
    assert program.returncode == 3
    assert "the report failed" in err


def drawing(launcher: int) -> bool:
    """Whether a launcher has its report drawn right now."""
    with suppress(OSError):  # a child that has ended since
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        return any(b"\0report\0" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
    return False
