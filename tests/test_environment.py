"""The environment: what it says of this process, and what child processes get."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sonde import environment

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.mark.parametrize(
    ("switch", "run", "wanted"),
    [("", "", False), ("1", "", True), ("0", "", False), ("", "/r", True), ("0", "/r", False), ("off", "/r", False)],
)
def test_wanted_at_import(monkeypatch: pytest.MonkeyPatch, switch: str, run: str, wanted: bool) -> None:
    """SONDE=1 or a run to join starts recording at import, and SONDE=0 forbids it."""
    monkeypatch.setenv("SONDE", switch)
    monkeypatch.setenv("SONDE_RUN", run)
    assert environment.wanted_at_import() is wanted


def test_publish_run_reaches_child_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process sees the published run, until it is taken back."""
    monkeypatch.setenv("SONDE_RUN", "before")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", "import os; print(os.environ.get('SONDE_RUN'))"]
    environment.publish_run("some-run")
    assert subprocess.check_output(command, text=True).strip() == str(tmp_path / "some-run")
    environment.publish_run(None)
    assert subprocess.check_output(command, text=True).strip() == "None"
    environment.publish_run(None)


@pytest.mark.parametrize(("value", "enabled"), [("1", True), ("0", False), ("", False), ("no", False)])
def test_dftracer_switch(monkeypatch: pytest.MonkeyPatch, value: str, enabled: bool) -> None:
    """DFTracer's own variable is on with 1 only."""
    monkeypatch.setenv("DFTRACER_ENABLE", value)
    assert environment.dftracer_enabled() is enabled


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["train.py"], "train"),
        (["/a/b/my.model.py"], "my.model"),
        (["/site/torchtool/__main__.py"], "torchtool"),
        (["/x/ipykernel_launcher.py"], "notebook"),
        (["-c"], "python"),
        (["-m"], "python"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_script_name(monkeypatch: pytest.MonkeyPatch, argv: list[str], name: str) -> None:
    """A run is named after the program that is recorded."""
    monkeypatch.setattr(sys, "argv", argv)
    assert environment.script_name() == name
