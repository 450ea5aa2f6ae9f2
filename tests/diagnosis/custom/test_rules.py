"""Rules of one's own: from Python and TOML, tried on a run, shown in the report; a bad one hurts nobody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sonde.analysis.run import open_run
from sonde.cli import main
from sonde.diagnosis.custom.process import ask_apart
from sonde.diagnosis.custom.rules import load_rules
from sonde.errors import RuleError
from sonde.testing import build_training
from sonde.views.report import report

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "own-rules.md"
PYTHON, TOML, *_ = re.findall(r"```(?:python|toml)\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of 30 steps."""
    return build_training(tmp_path_factory.mktemp("runs") / "one", steps=30)


def tried(run: Path, file: Path) -> Result:
    return CliRunner().invoke(main, ["rules", "test", str(file), str(run)])


def test_the_rules_of_the_guide_are_tried(run: Path, tmp_path: Path) -> None:
    """As they stand there."""
    (tmp_path / "my_rules.toml").write_text(TOML)
    (tmp_path / "my_rules.py").write_text(PYTHON)
    found = tried(run, tmp_path / "my_rules.toml")
    assert found.exit_code == 0, found.output
    assert re.search(
        r"LOW_THROUGHPUT  warn, 100 % sure\n  Only \d+(\.\d+)? samples per second, less than 1e\+06\.", found.output
    )
    python = tried(run, tmp_path / "my_rules.py")
    assert python.output == "2 rules tried, 0 findings.\n"


def test_a_finding_is_in_the_report_as_any_other(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A critical one is the verdict. The setting is that of the reader."""
    (tmp_path / "mine.py").write_text(
        "def too_short(facts):\n"
        "    count = facts.number('SELECT count(*) FROM steps')\n"
        "    return {'severity': 'critical', 'why': f'Only {count:.0f} steps.', 'next': 'Train longer.'}\n"
        "def facts_of_ours(facts):\n"
        "    assert facts.speed.trained and facts.run == 'one'\n"
    )
    (tmp_path / "sonde.toml").write_text("rules = ['mine.py']\n")
    monkeypatch.chdir(tmp_path)
    with open_run(run) as opened:
        found = report(opened)
    assert (found.verdict.kind, found.verdict.why, found.verdict.next) == (
        "TOO_SHORT",
        "Only 30 steps.",
        "Train longer.",
    )
    assert found.run.notes == []
    card = CliRunner().invoke(main, ["report", str(run)])
    assert "TOO_SHORT" in card.output


def test_bad_rules_are_named_and_the_others_are_asked(run: Path, tmp_path: Path) -> None:
    """One raises, one returns no finding, one prints; one that ends its process is the last."""
    (tmp_path / "bad.py").write_text(
        "import os\n"
        "def raises(facts): return 1 / 0\n"
        "def wrong(facts): return 'no'\n"
        "def prints(facts): print('{\"finding\": 1}')\n"
        "def good(facts): return {'why': 'Because.', 'next': 'Do.'}\n"
        "def ends(facts): os._exit(3)\n"
        "def late(facts): return {'why': 'Never.', 'next': 'No.'}\n"
    )
    found = ask_apart(run, [str(tmp_path / "bad.py")])
    assert [one.kind for one in found.findings] == ["GOOD"]
    assert found.asked == ["RAISES", "WRONG", "PRINTS", "GOOD", "ENDS"]
    assert found.problems == [
        "The rule RAISES in bad.py failed: ZeroDivisionError: division by zero",
        "WRONG returned str. Return None, or a dict with why and next.",
        "The rule ENDS in bad.py ended its process (exit code 3). Later rules were not run.",
    ]


def test_a_rule_that_hangs_is_named(run: Path, tmp_path: Path) -> None:
    """After its time; what was found before stays."""
    (tmp_path / "slow.py").write_text(
        "import time\ndef good(facts): return {'why': 'Because.'}\ndef hangs(facts): time.sleep(1000)\n"
    )
    found = ask_apart(run, [str(tmp_path / "slow.py")], seconds=20)
    assert [one.kind for one in found.findings] == ["GOOD"]
    assert found.problems == ["The rule HANGS in slow.py did not end within 20 s. Later rules were not run."]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.txt", "", "is not a rules file"),
        ("no.py", "x = 1\n", "has no rule"),
        ("no.py", "def (\n", "cannot be loaded: SyntaxError"),
        ("no.toml", "[A]\nabove = 1\n", "[A] has no query"),
        ("no.toml", "[A]\nquery = 'SELECT 1'\n", "[A] has no threshold"),
        ("no.toml", "[A]\nquery = 'SELECT 1'\nabov = 1\n", "Did you mean 'above'?"),
        ("no.toml", "[A\n", "is not valid TOML"),
        ("gone.py", None, "There is no file"),
    ],
)
def test_a_wrong_file_is_one_message(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    """What is wrong, and what to do."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(RuleError, match=re.escape(said)):
        load_rules(tmp_path / name)
