"""`sonde rules`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from sonde.cli import main
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules import RULES


def test_all_rules_and_thresholds_are_listed() -> None:
    """Each kind and each threshold is there."""
    result = CliRunner().invoke(main, ["rules"])
    assert result.exit_code == 0
    assert all(rule.kind in result.output for rule in RULES)
    assert all(f"  {name} " in result.output for name in Policy.load().thresholds)


def test_what_a_file_changes_is_marked(tmp_path: Path) -> None:
    """With a star."""
    (tmp_path / "my.toml").write_text("[input_bound]\nwarn_share = 0.35\n")
    result = CliRunner().invoke(main, ["rules", "--policy", str(tmp_path / "my.toml")])
    assert "0.35*" in result.output


def test_a_wrong_policy_is_one_message(tmp_path: Path) -> None:
    """No traceback, and the name that was meant."""
    (tmp_path / "my.toml").write_text("[inputbound]\nwarn_share = 0.35\n")
    result = CliRunner().invoke(main, ["rules", "--policy", str(tmp_path / "my.toml")])
    assert result.exit_code == 1
    assert "Did you mean 'input_bound'?" in result.output
