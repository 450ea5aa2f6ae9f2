"""`sonde gate` and `sonde baseline`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.cli import main
from sonde.testing import TRAINING, build_training

MS = 1_000_000
TRAIN = """
import sys, torch
torch.set_num_threads(1)
w = int(sys.argv[1])
m = torch.nn.Sequential(torch.nn.Linear(64, w), torch.nn.ReLU(), torch.nn.Linear(w, 64))
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(150):
    x = torch.randn(256, 64)
    (m(x) - x).pow(2).mean().backward()
    o.step()
    o.zero_grad()
"""
SLOW = TRAINING | {"forward": 6 * MS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: two alike, one slower."""
    monkeypatch.chdir(tmp_path)
    for name, phases in (("one-1111", TRAINING), ("two-2222", TRAINING), ("slow-3333", SLOW)):
        build_training(tmp_path / "sonde-runs" / name, steps=60, phases=phases, loss=lambda step: 1 / (step + 1))
    return tmp_path


def sonde(*args: str) -> Result:
    return CliRunner().invoke(main, args, env={"COLUMNS": "100"})


def test_an_equal_run_passes(folder: Path) -> None:
    """Exit code 0."""
    found = sonde("gate", "two", "--baseline", "one", "--max-slowdown", "5%")
    assert (found.exit_code, found.output.split()[0]) == (0, "PASS")


def test_a_slower_run_fails(folder: Path) -> None:
    """Exit code 1, and by how much."""
    found = sonde("gate", "slow", "--baseline", "one", "--max-slowdown", "5%")
    assert (found.exit_code, found.output.split()[0]) == (1, "FAIL")
    assert "1.250x" in found.output


def test_a_saved_baseline_outlives_its_run(folder: Path) -> None:
    """By its name, and by its file."""
    assert sonde("baseline", "save", "main", "one").exit_code == 0
    assert "main" in sonde("baseline", "list").output
    for name in ("main", "sonde-baselines/main.json"):
        assert sonde("gate", "two", "--baseline", name, "--max-slowdown", "5%").exit_code == 0
    assert sonde("baseline", "rm", "main").exit_code == 0
    assert sonde("gate", "two", "--baseline", "main", "--max-slowdown", "5%").exit_code == 2


def test_a_saved_baseline_does_not_replace_another_file(folder: Path) -> None:
    """It could be anything."""
    (folder / "sonde-baselines").mkdir()
    (folder / "sonde-baselines" / "main.json").write_text("{}")
    assert sonde("baseline", "save", "main", "one").exit_code == 1
    assert (folder / "sonde-baselines" / "main.json").read_text() == "{}"


def test_a_limit_of_a_metric_needs_no_baseline(folder: Path) -> None:
    """Two of twelve milliseconds are waiting."""
    assert sonde("gate", "one", "--max", "input_wait_share=0.5").exit_code == 0
    assert sonde("gate", "one", "--max", "input_wait_share=0.1").exit_code == 1


def test_the_same_numbers_are_asked_of_both_runs(folder: Path) -> None:
    """Another loss fails, a saved baseline cannot answer."""
    build_training(folder / "sonde-runs" / "other-4444", steps=60, loss=lambda step: 2.0)
    assert sonde("gate", "two", "--baseline", "one", "--same-numbers").exit_code == 0
    assert sonde("gate", "other", "--baseline", "one", "--same-numbers").exit_code == 1
    sonde("baseline", "save", "main", "one")
    assert sonde("gate", "two", "--baseline", "main", "--same-numbers").exit_code == 3


def test_a_run_that_is_too_short_is_inconclusive(folder: Path) -> None:
    """Exit code 3: without enough data, a gate does not pass."""
    build_training(folder / "sonde-runs" / "short-5555", steps=5)
    assert sonde("gate", "short", "--baseline", "one", "--max-slowdown", "5%").exit_code == 3


def test_json_has_the_outcome_and_every_check(folder: Path) -> None:
    """For scripts."""
    found = json.loads(sonde("gate", "slow", "--baseline", "one", "--max-slowdown", "5%", "--json").stdout)
    assert (found["outcome"], found["exit_code"]) == ("fail", 1)
    assert found["checks"][0]["value"] == pytest.approx(1.25)


@pytest.mark.parametrize(
    "args",
    [
        ("one",),
        ("one", "--max-slowdown", "5%"),
        ("one", "--baseline", "two", "--max-slowdown", "five"),
        ("one", "--max", "speed=3"),
        ("nowhere", "--max", "input_wait_share=0.1"),
        ("one", "--baseline", "nothing", "--max-slowdown", "5%"),
        ("one", "--baseline", "train.txt", "--max-slowdown", "5%"),
        ("--ab", "true", "true", "--baseline", "one"),
        ("--ab", "python 'train.py", "true"),
        ("--ab", "python train.py", " "),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_one_message(folder: Path, args: tuple[str, ...]) -> None:
    """Never 0, 1 or 3, which are answers."""
    (folder / "train.txt").write_text("hello")
    found = sonde("gate", *args)
    assert found.exit_code == 2
    assert "Error: " in found.output
    assert "Traceback" not in found.output


def test_a_program_that_fails_ends_the_rounds(folder: Path) -> None:
    """With what it said last."""
    (folder / "broken.py").write_text("raise ValueError('no data')")
    found = sonde("gate", "--ab", f"{sys.executable} broken.py", f"{sys.executable} broken.py")
    assert found.exit_code == 2
    assert "exit code 1" in found.output


def test_a_program_that_does_not_end_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 2: that is no answer."""
    (folder / "endless.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    monkeypatch.setattr("sonde.cli.gate.TURN_S", 4)
    found = sonde("gate", "--ab", f"{sys.executable} endless.py", "true")
    assert found.exit_code == 2
    assert "was stopped after" in found.output
    begun = folder / "pid"  # on a busy host, it may not even have begun
    assert not begun.exists() or not Path(f"/proc/{begun.read_text()}").exists()


def test_the_steps_of_the_workflow_in_the_docs_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shell lines, but for the installation."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "ci.md").read_text()
    workflow = page.partition("```yaml")[2].partition("```")[0]
    lines = [
        line.partition("run: ")[2] for line in workflow.split("\n") if " run: " in line and "pip install" not in line
    ]
    assert len(lines) == 3
    (tmp_path / "train.py").write_text(TRAIN.replace("150", "40"))
    first = ["sonde run -q --name main train.py 32", "sonde baseline save main"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in first + [line.replace("train.py", "train.py 32") for line in lines]:
        ended = subprocess.run(
            ["sh", "-ec", line], cwd=tmp_path, env=os.environ | {"PATH": path}, timeout=120, check=False
        )
        assert ended.returncode == 0, line
    assert (tmp_path / "report.html").exists()


@pytest.mark.soak
def test_two_programs_are_judged_in_turn(folder: Path) -> None:
    """A step that does one and a half times the work fails."""
    (folder / "train.py").write_text(TRAIN)
    assert (
        sonde(
            "gate", "--ab", f"{sys.executable} train.py 256", f"{sys.executable} train.py 384", "--max-slowdown", "10%"
        ).exit_code
        == 1
    )
