"""The end of `sonde run`: the card of the report on the error channel, made by a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.launching import HERE, run, script

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
