"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = """
import sonde
from sonde.testing import assert_trace_matches


@sonde.flow.trace_func(stage_name="prepare_inputs")
def scaled(x):
    return [FACTOR * one for one in x]


def test_scaling():
    with sonde.flow.trace() as trace:
        scaled([1, 2])
    assert_trace_matches(trace, "golden/scaled.json")
"""


def run_pytest(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def write(folder: Path, text: str) -> None:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")


def test_the_fixture_gives_the_run_of_the_test(tmp_path: Path) -> None:
    """Read when it is first asked."""
    write(
        tmp_path,
        """
import sonde
from sonde import session

def test_spans(sonde_run):
    with sonde.span("work"):
        pass
    assert sonde_run.sql("select name from events where kind = 'span'").fetchall() == [("work",)]

def test_nothing_of_the_other_test(sonde_run):
    assert sonde_run.sql("select name from events where kind = 'span'").fetchall() == []

def test_not_recorded():
    assert session.current() is None
""",
    )
    found = run_pytest(tmp_path)
    assert "3 passed" in found.stdout, found.stdout


def test_a_golden_trace_is_written_and_then_compared(tmp_path: Path) -> None:
    """First it is missing, then accepted, then it holds, then it does not."""
    write(tmp_path, GOLDEN.replace("FACTOR", "2"))
    assert "There is no golden trace" in run_pytest(tmp_path).stdout
    assert "1 passed" in run_pytest(tmp_path, "--sonde-update").stdout
    assert (tmp_path / "golden" / "scaled.json").exists()
    assert "1 passed" in run_pytest(tmp_path).stdout
    write(tmp_path, GOLDEN.replace("FACTOR", "3"))
    failed = run_pytest(tmp_path)
    assert failed.returncode == 1
    assert "scaled" in failed.stdout
    assert "value 4" in failed.stdout
    assert "value 6" in failed.stdout


@pytest.mark.parametrize("module", ["torch", "numpy", "duckdb"])
def test_the_plugin_alone_loads_no_library(tmp_path: Path, module: str) -> None:
    """A test that uses nothing of it runs as before."""
    write(tmp_path, f"import sys\ndef test_it():\n    assert {module!r} not in sys.modules\n")
    assert "1 passed" in run_pytest(tmp_path).stdout
