"""`sonde report`: the card, JSON, the page, another policy, and what can be wrong with the call."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.views import bad
from tests.views.runs import EVIL, with_slow_item

from sonde.cli import main
from sonde.testing import BuiltProcess, BuiltRecord, build_run, build_training, training_processes

OLD, NEW = "20250101-000000-old-1111", "20250102-000000-new-2222"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: a training, and a newer one with a single span."""
    path = tmp_path_factory.mktemp("runs")
    with_slow_item(path / OLD)
    later = {"mono_ns": 0, "wall_ns": 1_800_000_000_000_000_000}
    build_run(path / NEW, [BuiltProcess([BuiltRecord(dur=1)])], start=later)
    return path


def call(folder: Path, *args: str, width: int = 100) -> Result:
    return CliRunner().invoke(main, ["report", "--dir", str(folder), *args], env={"COLUMNS": str(width)})


def test_the_newest_run_is_meant(folder: Path) -> None:
    """Without a name."""
    found = call(folder)
    assert found.exit_code == 0
    assert NEW in found.stdout
    assert "INSUFFICIENT_DATA" in found.stdout


def test_a_part_of_the_name_is_enough(folder: Path) -> None:
    """As in the other commands."""
    assert "SLOWEST STEPS" in call(folder, "old").stdout


def test_json_is_json(folder: Path) -> None:
    """With everything in it."""
    found = json.loads(call(folder, "old", "--json").stdout)
    assert found["schema_version"] == 1
    assert found["verdict"] == found["findings"][0]
    assert found["run"]["id"] == OLD


def test_a_critical_finding_fails_the_command_if_asked(tmp_path: Path) -> None:
    """The card is printed all the same; a run without one passes."""
    slow = {"input_wait": 90_000_000, "forward": 3_000_000, "backward": 5_000_000, "optimizer": 1_000_000}
    build_training(tmp_path / "20250101-000000-slow-1111", steps=60, phases=slow)
    build_training(tmp_path / "20250102-000000-fine-2222", steps=60)
    failed = call(tmp_path, "slow", "--fail-on", "critical")
    assert "INPUT_BOUND" in failed.stdout
    assert failed.exit_code == 1
    assert call(tmp_path, "fine", "--fail-on", "critical").exit_code == 0


def test_narrow_is_narrow(folder: Path) -> None:
    """Sixty columns, on any terminal."""
    assert max(map(len, call(folder, "old", "--narrow", width=140).stdout.splitlines())) <= 60


def test_a_page_is_written_and_may_be_written_again(folder: Path, tmp_path: Path) -> None:
    """Into a pipe no card is drawn beside it."""
    target = tmp_path / "report.html"
    for _ in range(2):
        found = call(folder, "old", "--html", str(target))
        assert (found.exit_code, found.stdout) == (0, "")
        assert f"Written to {target}" in found.stderr
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("name", "told"),
    [("train.py", "is not a Sonde report"), ("folder", "is a folder"), ("nowhere/report.html", "There is no folder")],
)
def test_a_page_goes_nowhere_else(folder: Path, tmp_path: Path, name: str, told: str) -> None:
    """Never over another file."""
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "folder").mkdir()
    found = call(folder, "--html", str(tmp_path / name))
    assert found.exit_code == 1
    assert told in found.stderr
    assert (tmp_path / "train.py").read_text() == "print()"


def test_another_policy_changes_the_verdict(folder: Path, tmp_path: Path) -> None:
    """With a hundred steps needed, sixty are not enough."""
    policy = tmp_path / "policy.toml"
    policy.write_text("[steps]\nleast = 100\n")
    assert (
        json.loads(call(folder, "old", "--policy", str(policy), "--json").stdout)["verdict"]["kind"]
        == "INSUFFICIENT_DATA"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [("[steps]\nlest = 1\n", "'least'"), ("[stps]\n", "'steps'"), ("steps = [", "TOML"), (None, "read")],
)
def test_a_wrong_policy_is_one_message(folder: Path, tmp_path: Path, content: str | None, told: str) -> None:
    """What is wrong, and what was probably meant."""
    policy = tmp_path / "policy.toml"
    if content is not None:
        policy.write_text(content)
    found = call(folder, "old", "--policy", str(policy))
    assert found.exit_code == 1
    assert told in found.stderr
    assert len(found.stderr.splitlines()) <= 3


def test_what_is_no_run_is_one_message(tmp_path: Path) -> None:
    """An empty folder, a name that is not there, a format that is too new."""
    assert "No runs in" in call(tmp_path).stderr
    (tmp_path / "empty").mkdir()
    assert "is not a run" in call(tmp_path, str(tmp_path / "empty")).stderr
    (process,) = training_processes(steps=1)
    build_run(tmp_path / "newer", [process._replace(process={"schema": 99})])
    found = call(tmp_path, "newer")
    assert found.exit_code == 1
    assert "Install a newer version" in found.stderr


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (bad.nothing, "Nothing was recorded. A diagnosis needs at least 10 steps."),
        (bad.no_steps, "No training loop was seen."),
        (bad.one_step, "Only 0 steps after 1 warm-up step."),
        (bad.only_evaluation, "The run only evaluates: 60 fetches and forward passes in"),
        (bad.unequal, "the ranks end at different steps (rank 0 at step 59, rank 1 at step 29)"),
        (bad.silent_rank, "ranks 2 and 3 of 4: not recorded"),
        (bad.clocks, "the host clocks differ by 7.0 h"),
        (bad.newer, "run.json has format 99"),
        (bad.damaged, "run.json"),
    ],
)
def test_a_run_with_something_wrong_has_a_card_and_a_page_that_say_so(
    tmp_path: Path, build: Callable[[Path], Path], told: str
) -> None:
    """In one sentence; on the page as well as on the card."""
    path = str(build(tmp_path / "run"))
    card = call(tmp_path, path, width=200)
    assert card.exit_code == 0, card.output
    assert told in " ".join(card.stdout.split())
    assert call(tmp_path, path, "--html", str(tmp_path / "x.html")).exit_code == 0
    assert told in unescape((tmp_path / "x.html").read_text())


def test_hostile_names_are_harmless_everywhere(tmp_path: Path) -> None:
    """On the card, in JSON and on the page."""
    (process,) = training_processes(steps=20, layers=[EVIL])
    build_run(tmp_path / "run", [process], name=EVIL, command=[EVIL])
    assert all(line.isprintable() for line in call(tmp_path).stdout.splitlines())
    assert json.loads(call(tmp_path, "--json").stdout)["run"]["name"] == EVIL
    call(tmp_path, "--html", str(tmp_path / "x.html"), "--static")
    assert "<script" not in (tmp_path / "x.html").read_text()
    call(tmp_path, "--html", str(tmp_path / "y.html"))
    assert (tmp_path / "y.html").read_text().count("<script") <= 2  # the data, and what draws it


def test_a_sealed_run_has_the_same_report(tmp_path: Path) -> None:
    """Whatever form the records have."""
    build_training(tmp_path / "run", steps=30, workers=1)
    before = json.loads(call(tmp_path, "--json").stdout)
    assert CliRunner().invoke(main, ["seal", "--dir", str(tmp_path)]).exit_code == 0
    after = json.loads(call(tmp_path, "--json").stdout)
    for part in ("steps", "phases", "ranks", "memory", "items", "verdict"):
        assert after[part] == before[part]


def test_an_evaluation_after_the_last_step_is_on_the_card(tmp_path: Path) -> None:
    """As many programs end."""
    build_training(tmp_path / "run", steps=20, evaluate_every=20)
    assert "evaluation after the last step: " in call(tmp_path, "run").stdout
    build_training(tmp_path / "other", steps=20)
    assert "after the last step" not in call(tmp_path, "other").stdout


def test_steps_that_several_ranks_made_together_count_once(tmp_path: Path) -> None:
    """Twenty steps of two ranks are twenty."""
    build_training(tmp_path / "run", steps=20, ranks=2, loss=lambda step: float("nan") if step > 14 else 1.0)
    assert "The loss is NaN or infinite in 5 of 20 steps, starting at step 15" in " ".join(
        call(tmp_path, "run", width=200).stdout.split()
    )
