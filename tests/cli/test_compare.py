"""`sonde compare`: text, JSON, the page, several runs, and what can be wrong with the call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from tests.compare.building import training
from tests.html.parsing import Parsed
from tests.views import bad

from sonde.cli import main
from sonde.compare.schema import FILE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, the second slower."""
    path = tmp_path_factory.mktemp("runs")
    more: dict[str, Any] = {
        "loss": lambda step: 1 / (step + 1),
        "workers": 1,
        "item_ns": lambda _rank, _index: 1_000_000,
    }
    training(path / "before-1111", **more)
    training(path / "after-2222", slower={"forward": 2.0}, seed=2, **more)
    training(path / "third-3333", slower={"forward": 3.0}, seed=3, **more)
    return path


def call(folder: Path, *args: str, width: int = 100) -> Result:
    return CliRunner().invoke(main, ["compare", "--dir", str(folder), *args], env={"COLUMNS": str(width)})


def test_text_says_the_verdict_first_and_fits(folder: Path) -> None:
    """In 100 columns."""
    found = call(folder, "before", "after")
    assert found.exit_code == 0
    assert found.stdout.startswith("SLOWER\n")
    assert max(map(len, found.stdout.splitlines())) <= 100


def test_a_narrow_terminal_is_enough(folder: Path) -> None:
    """Columns go."""
    assert max(map(len, call(folder, "before", "after", width=60).stdout.splitlines())) <= 60


def test_json_fits_the_schema(folder: Path) -> None:
    """And says the same."""
    found = json.loads(call(folder, "before", "after", "--json").stdout)
    jsonschema.validate(found, json.loads(FILE.read_text()))
    assert found["verdict"] == "slower"
    assert found["numbers"]["identical"] is True
    assert found["step_time"]["low"] <= found["step_time"]["ratio"] <= found["step_time"]["high"]


def test_the_page_draws_both_distributions(folder: Path, tmp_path: Path) -> None:
    """One file, without a script."""
    target = tmp_path / "change.html"
    found = call(folder, "before", "after", "--html", str(target))
    assert found.exit_code == 0
    page = target.read_text()
    parsed = Parsed(page)
    assert "SLOWER" in parsed.words
    assert {"dist-a", "dist-b", "delta"} <= {value for name, value in parsed.attributes if name == "class"}
    assert "script" not in parsed.tags
    assert call(folder, "before", "after", "--html", str(target)).exit_code == 0


def test_a_foreign_file_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    """Only a page of this kind is."""
    target = tmp_path / "notes.html"
    target.write_text("mine")
    found = call(folder, "before", "after", "--html", str(target))
    assert found.exit_code == 1
    assert target.read_text() == "mine"


def test_three_runs_are_ranked(folder: Path) -> None:
    """As a table, and as JSON."""
    found = call(folder, "before", "after", "third", "--by", "mean")
    assert found.stdout.splitlines()[0] == "3 runs by mean, against before-1111"
    assert "baseline" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 100
    ranked = json.loads(call(folder, "before", "after", "third", "--by", "verdict", "--json").stdout)
    jsonschema.validate(ranked, json.loads(FILE.read_text()))
    assert [row["run"] for row in ranked["ranking"]] == ["before-1111", "after-2222", "third-3333"]


@pytest.mark.parametrize("by", ["samples_per_s", "input_wait_share", "peak_rss"])
def test_any_metric_ranks(folder: Path, by: str) -> None:
    """Also one that was not recorded."""
    assert call(folder, "before", "after", "third", "--by", by).exit_code == 0


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "Missing argument"),
        (("before",), 2, "has no restarts to check. Name two runs"),
        (("before", "aftre"), 1, "Did you mean 'after-2222'?"),
        (("before", "after", "--by", "speed"), 2, "'speed' is not one of"),
        (("before", "after", "third", "--html", "x.html"), 2, "--html takes two runs"),
    ],
)
def test_a_wrong_call_is_answered_with_a_sentence(folder: Path, args: tuple[str, ...], code: int, words: str) -> None:
    """And the right exit code."""
    found = call(folder, *args)
    assert (found.exit_code, words in found.stderr) == (code, True)


def test_a_run_of_a_newer_format_is_refused(folder: Path, tmp_path: Path) -> None:
    """It names the format."""
    process = next((training(tmp_path / "new", steps=20)).glob("*-*-0")) / "process.json"
    process.write_text(json.dumps(json.loads(process.read_text()) | {"schema": 99}))
    found = call(folder, "before", str(tmp_path / "new"))
    assert found.exit_code == 1
    assert "format 99" in found.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "B has 0 steps"),
        ("no_steps", "B has 0 steps"),
        ("one_step", "B has 0 steps"),
        ("only_evaluation", "B has 0 steps"),
        ("unequal", "A has 1 rank, B has 2."),
        ("killed", "A has 77 steps after the warm-up, B 57."),
        ("newer", "B: it was written in format 99; this version of Sonde reads format 1."),
        ("damaged", "run.json is damaged"),
    ],
)
def test_odd_runs_are_compared_with_a_sentence(folder: Path, tmp_path: Path, name: str, words: str) -> None:
    """Empty, without steps, of other ranks, killed, of a newer format: never with a traceback."""
    found = call(folder, "before", str(getattr(bad, name)(tmp_path / "odd")))
    assert found.exit_code == 0
    assert words in found.stdout
