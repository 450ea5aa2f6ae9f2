"""The policy: each threshold is documented and used, and a file of the user changes some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.diagnosis import policy as module
from sonde.diagnosis.document import document
from sonde.diagnosis.policy import Policy
from sonde.diagnosis.rules import RULES
from sonde.errors import PolicyError

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = Path(module.__file__).parent


def test_the_page_of_rules_is_up_to_date() -> None:
    """docs/reference/rules.md is what the rules and the policy say; `make docs` writes it."""
    assert (ROOT / "docs/reference/rules.md").read_text() == document()


def test_each_threshold_is_used() -> None:
    """No threshold without a rule that compares with it."""
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for name in Policy.load().thresholds:
        part, _, last = name.partition(".")
        graded = (
            last in ("warn_share", "critical_share", "warn_ms", "critical_ms") and f'graded(policy, "{part}"' in code
        )
        heavy = last in ("least_s", "warn_share", "critical_share") and f'heavy(facts, policy, "{part.upper()}"' in code
        assert graded or heavy or f'"{name}"' in code or f"'{name}'" in code, name


def test_each_rule_has_a_sentence_and_its_own_kind() -> None:
    """What `sonde rules` prints."""
    for rule in RULES:
        assert rule.about.endswith("."), rule.kind
        assert rule.kind.isupper()


def test_a_file_changes_what_it_names(tmp_path: Path) -> None:
    """And nothing else."""
    (tmp_path / "my.toml").write_text("[input_bound]\nwarn_share = 0.3\n[steps]\nleast = { value = 20 }\n")
    changed = Policy.load(tmp_path / "my.toml")
    assert (changed["input_bound.warn_share"], changed["steps.least"]) == (0.3, 20)
    same = Policy.load()
    assert [name for name in same.thresholds if same[name] != changed[name]] == [
        "steps.least",
        "input_bound.warn_share",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[input_bond]\nwarn_share = 1", "Did you mean 'input_bound'"),
        ("input_bound = 3", "unknown policy section"),
        ("[input_bound]\nwarn_shares = 1", "Did you mean 'warn_share'"),
        ("[input_bound]\nwarn_share = 'much'", "is not a threshold"),
        ("[input_bound]\nwarn_share = true", "is not a threshold"),
        ("[input_bound]\nwarn_share = -1", "is not a threshold"),
        ("[input_bound]\nwarn_share = nan", "is not a threshold"),
        ("[input_bound", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """With the name that was probably meant."""
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(PolicyError, match=message):
        Policy.load(tmp_path / "my.toml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(PolicyError, match=r"Cannot read the policy .*nowhere\.toml"):
        Policy.load(tmp_path / "nowhere.toml")


if __name__ == "__main__":
    (ROOT / "docs/reference/rules.md").write_text(document())
