"""The DFTracer export, read by DFTracer's own tools in an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sonde.analysis.run import open_run
from sonde.exchange import pfw
from sonde.testing import build_training

pytestmark = pytest.mark.soak
TOOLS = ("dftracer-analyzer==0.0.9", "dftracer-utils==0.0.12")  # newer utils do not go with this analyzer
STEPS, ITEMS = 12, 4


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of their programs."""
    venv = tmp_path_factory.mktemp("peers") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *TOOLS]
    found = subprocess.run(pip, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"they do not install here: {found.stderr[-500:]}")
    return venv / "bin"


@pytest.fixture
def trace(tmp_path: Path) -> tuple[Path, int]:
    """The folder with the export of an unedited training, and how many events it has."""
    folder = tmp_path / "trace"
    folder.mkdir()
    run = build_training(tmp_path / "run", ranks=1, steps=STEPS, workers=1, batch_size=ITEMS)
    with open_run(run) as opened:
        count = pfw.export(opened, folder / "trace.pfw.gz", gzip=True)
    return folder, count


def test_dfanalyzer_shows_the_layers(tools: Path, trace: tuple[Path, int], tmp_path: Path) -> None:
    """Compute, fetching and the data loader, each with as many operations as were recorded."""
    folder, count = trace
    command = [str(tools / "dfanalyzer"), f"trace_path={folder}", "analyzer/preset=dlio"]
    found = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "USER": "sonde"}, capture_output=True, text=True, check=True
    )
    counts = {name: int(number) for name, number in re.findall(r"│ ([\w ]+?) Count +│ count +│ +(\d+) │", found.stdout)}
    assert counts["Total"] == count
    assert counts["Compute"] == 3 * STEPS
    assert counts["Fetch Data"] == STEPS
    assert counts["DLIO Data Loader"] == STEPS * (1 + ITEMS)


def test_dftracer_utils_count_the_events(tools: Path, trace: tuple[Path, int]) -> None:
    """All of them."""
    folder, count = trace
    found = subprocess.run(
        [tools / "dftracer_event_count", "-d", folder], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(found.stdout.split()[-1]) == count
