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


BUDGET = """
import time
import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        time.sleep(WAIT)
        return torch.zeros(4)


@pytest.mark.sonde(LIMITS)
def test_training():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(Slow(), batch_size=2):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def budget(folder: Path, limits: str, wait: str = "0.005") -> None:
    write(folder, BUDGET.replace("LIMITS", limits).replace("WAIT", wait))


def test_a_test_that_waits_too_long_for_data_fails(tmp_path: Path) -> None:
    """With the share and the limit; a higher limit lets it pass."""
    budget(tmp_path, "max_input_wait=0.01")
    failed = run_pytest(tmp_path)
    assert "input_wait_share is" in failed.stdout
    assert "1 failed" in failed.stdout
    budget(tmp_path, "max_input_wait=1.0")
    assert "1 passed" in run_pytest(tmp_path).stdout


def test_a_slowdown_is_held_against_a_saved_baseline(tmp_path: Path) -> None:
    """First it is missing, then saved, then exceeded."""
    budget(tmp_path, "max_slowdown='50%'")
    assert "There is no baseline" in run_pytest(tmp_path).stdout
    assert "1 passed" in run_pytest(tmp_path, "--sonde-update").stdout
    budget(tmp_path, "max_slowdown='50%'", wait="0.03")
    assert "1 failed" in run_pytest(tmp_path).stdout


def test_a_wrong_limit_fails_the_test(tmp_path: Path) -> None:
    """It would hold nothing."""
    budget(tmp_path, "max_imput_wait=0.5", wait="0")
    failed = run_pytest(tmp_path)
    assert "There is no metric" in failed.stdout
    assert "1 failed" in failed.stdout


def test_a_test_without_steps_is_skipped_as_inconclusive(tmp_path: Path) -> None:
    """Missing is not zero, and not a pass."""
    write(tmp_path, "import pytest\n@pytest.mark.sonde(max_input_wait=0.5)\ndef test_it():\n    pass\n")
    assert "1 skipped" in run_pytest(tmp_path).stdout


@pytest.mark.parametrize("module", ["torch", "numpy", "duckdb"])
def test_the_plugin_alone_loads_no_library(tmp_path: Path, module: str) -> None:
    """A test that uses nothing of it runs as before."""
    write(tmp_path, f"import sys\ndef test_it():\n    assert {module!r} not in sys.modules\n")
    assert "1 passed" in run_pytest(tmp_path).stdout
