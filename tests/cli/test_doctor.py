"""`sonde doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sonde.cli import doctor as doctor_module, main
from sonde.store.blindspots import BLIND_SPOTS


def doctor(folder: Path, *args: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--dir", str(folder), *args], env=environment)


def found(folder: Path, **environment: str) -> Any:
    return json.loads(doctor(folder, "--json", **environment).output)


def test_it_records_kills_and_reads_back(tmp_path: Path) -> None:
    """The verdict comes from a real recording, of which nothing is left."""
    result = doctor(tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Recording works\n")
    assert "500 of 500 spans recovered" in result.output
    assert list(tmp_path.iterdir()) == []


def test_it_tells_how_recording_is_done(tmp_path: Path) -> None:
    """Core, file system, settings with their source, and what cannot be seen."""
    health = found(tmp_path, SONDE_CAP="1GB")
    assert health["core"] in ("c", "python")
    assert health["folder"]["writes"] in ("mapped", "mapped elsewhere", "block")
    assert health["folder"]["free"] > 0
    settings = {one["name"]: one for one in health["settings"]}
    assert settings["cap"] == {"name": "cap", "value": "1.00 GB", "source": "the environment variable SONDE_CAP"}
    assert settings["dir"]["source"] == "the argument dir"
    assert health["unseen"]
    assert health["extras"]["numpy"]


def test_block_writes_are_tried_as_they_are(tmp_path: Path) -> None:
    """Where a kill may lose a block, the trial ends properly."""
    health = found(tmp_path, SONDE_WRITES="block")
    assert health["folder"]["writes"] == "block"
    assert health["proof"]["ok"]
    assert "ended" in health["proof"]["told"]


def test_recording_switched_off_is_told(tmp_path: Path) -> None:
    """The trial runs all the same, and the text says that programs are not recorded."""
    result = doctor(tmp_path, SONDE="0")
    assert result.exit_code == 0
    assert "Recording is off" in result.output


@pytest.mark.parametrize("core", ["python", "auto"])
def test_it_tells_which_core_and_why(tmp_path: Path, core: str) -> None:
    """The Python core comes with a reason."""
    command = [sys.executable, "-m", "sonde", "doctor", "--json", "--dir", str(tmp_path)]
    program = f"import os, sys; os.environ['SONDE_CORE'] = {core!r}; os.execv(sys.executable, {command!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    health = json.loads(done.stdout)
    assert (health["core"] == "c") == (health["core_note"] is None)
    assert health["proof"]["ok"]


def test_a_recording_that_fails_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and what was seen of it."""
    monkeypatch.setattr(doctor_module, "PROBE", "raise SystemExit('no luck today')")
    result = doctor(tmp_path)
    assert result.exit_code == 1
    assert "Recording does not work" in result.output
    assert "no luck today" in result.output


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    """No folder beside the runs, no recording."""
    result = doctor(Path("/proc/none"))
    assert result.exit_code == 1
    assert "cannot create a folder" in result.output


def test_it_lists_the_patches_in_force_and_the_same_blind_spots_as_a_report(tmp_path: Path) -> None:
    """Those of torch too; the Python is that of the environment, and sizes are written in one way."""
    health = found(tmp_path)
    patched = " ".join(health["proof"]["patched"])
    assert "Module.__call__" in patched
    assert "DataLoader.__iter__" in patched
    assert health["unseen"][: len(BLIND_SPOTS)] == list(BLIND_SPOTS)
    assert health["program"] == sys.executable
    settings = {one["name"]: one["value"] for one in health["settings"]}
    assert (settings["cap"], settings["values_limit"], settings["args_limit"]) == ("4.00 GB", "64.0 MB", "4096")
