"""`sonde blackbox`: the page, JSON, the file, another dump, and a run that has nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.analysis.boxes import batch, birth, certificate, raised, with_marks, write_dump

from sonde.cli import main
from sonde.testing import BuiltProcess, BuiltRecord, build_run

OLD, NEW = "20250101-000000-old-1111", "20250102-000000-new-2222"
PLAIN = BuiltProcess([BuiltRecord(dur=1)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one that failed, and a newer one in which nothing happened."""
    path = tmp_path_factory.mktemp("runs")
    run = build_run(path / OLD, [with_marks(PLAIN, birth(certificate()))])
    write_dump(run, "nonfinite", [batch(812, {"image": np.zeros((4, 3, 8, 8))}, loss="NaN")], nonfinite=certificate())
    write_dump(run, "exception", number=1, exception=raised())
    later = {"mono_ns": 0, "wall_ns": 1_800_000_000_000_000_000}
    build_run(path / NEW, [PLAIN], start=later)
    return path


def call(folder: Path, *args: str, width: int = 100) -> Result:
    return CliRunner().invoke(main, ["blackbox", "--dir", str(folder), *args], env={"COLUMNS": str(width)})


def test_a_run_with_nothing_says_what_to_do(folder: Path) -> None:
    """The newest run is meant; nothing was found, and that is exit code 1 as elsewhere."""
    found = call(folder)
    assert found.exit_code == 1
    assert NEW in found.stdout
    assert "sonde run --blackbox" in " ".join(found.stdout.split())


def test_the_page_of_a_run_that_failed(folder: Path) -> None:
    """It was found: exit code 0."""
    found = call(folder, "old")
    assert found.exit_code == 0
    assert "FIRST NAN" in found.stdout
    assert "\x1b" not in found.stdout


def test_json_has_everything(folder: Path) -> None:
    """And is JSON: a loss that is no number is a text."""
    found = json.loads(call(folder, "old", "--json").stdout)
    assert found["births"][0]["certificate"]["layer"] == "encoder.3.norm"
    assert found["batches"][0]["loss"] == "NaN"
    assert [one["shown"] for one in found["dumps"]] == [True, False]


def test_another_dump_is_asked_for_by_its_number(folder: Path) -> None:
    """One that is not there is told."""
    assert json.loads(call(folder, "old", "--dump", "2", "--json").stdout)["dump"].startswith("001-exception")
    found = call(folder, "old", "--dump", "9")
    assert found.exit_code == 1
    assert "This run has no dump 9. Choose 1 to 2 with --dump." in found.stderr
    assert call(folder, "old", "--dump", "0").exit_code == 2


def test_narrow_is_narrow(folder: Path) -> None:
    """Sixty columns, on any terminal."""
    assert max(map(len, call(folder, "old", "--narrow", width=140).stdout.splitlines())) <= 60


def test_a_page_is_written_and_may_be_written_again(folder: Path, tmp_path: Path) -> None:
    """Into a pipe nothing is drawn beside it, and no report is written over."""
    target = tmp_path / "box.html"
    for _ in range(2):
        found = call(folder, "old", "--html", str(target))
        assert (found.exit_code, found.stdout) == (0, "")
        assert f"Written to {target}" in found.stderr
    assert "data:image/png;base64," in target.read_text()
    report = tmp_path / "report.html"
    assert CliRunner().invoke(main, ["report", "--dir", str(folder), "old", "--html", str(report)]).exit_code == 0
    refused = call(folder, "old", "--html", str(report))
    assert refused.exit_code == 1
    assert "is not a Sonde black box" in refused.stderr


def test_the_report_names_the_command(folder: Path) -> None:
    """In the card, the page and JSON."""
    line = f"black box: 2 dumps (nonfinite, exception), first NaN found - sonde blackbox {OLD}"
    card = CliRunner().invoke(main, ["report", "--dir", str(folder), "old"], env={"COLUMNS": "100"}).stdout
    assert line in " ".join(card.split())
    found = json.loads(CliRunner().invoke(main, ["report", "--dir", str(folder), "old", "--json"]).stdout)
    assert found["black_box"] == {
        "dumps": 2, "reasons": ["nonfinite", "exception"], "births": 1, "command": f"sonde blackbox {OLD}",
    }  # fmt: skip
    assert found["verdict"]["kind"] == "NON_FINITE"
