"""The policy: each threshold is documented and used, and a file of the user changes some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.diagnosis import policy as module
from sonde.diagnosis.policy import Policy, Threshold
from sonde.diagnosis.rules import RULES, shared_parts
from sonde.errors import PolicyError

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = Path(module.__file__).parent


def test_the_page_of_rules_is_up_to_date() -> None:
    """docs/reference/rules.md is what the rules and the policy say; `make docs` writes it."""
    assert (ROOT / "docs/reference/rules.md").read_text() == rules_page()


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


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_HEAD = """# The rules of the diagnosis

This page is generated (`make docs`) from `src/sonde/diagnosis/rules` and `policy.toml`.

Rules compare facts with thresholds. Facts are numbers from queries over the [tables](tables.md). Each finding contains
its queries; run them again to get the printed numbers.

- **Medians decide**, over blocks of consecutive steps. A loader with n workers delivers in bursts, so single steps wait
  for very different times. Warm-up steps are left out, and so are steps in which loader workers start.
- **Every share also has an absolute minimum**: half of a 0.3 ms step is not worth a warning.
- **One share is shown**, in the verdict, the table and the page: the share of all step time after warm-up. Thresholds
  are compared with medians, which the evidence names "in a median step".
- **Device times decide** where they are known: waiting on the host costs nothing while the device is busy.
- The *training time* of a step excludes evaluation and checkpoints. The *total time* includes them and the warm-up.
- Missing data is not evidence: without its data a rule reports nothing.
- One finding is the verdict: failures first, then the most severe, then the most expensive. A cause comes before its
  consequences.

`sonde rules` prints this list. `sonde report --policy FILE` uses your own thresholds; the file needs only what it changes:

```toml
[input_bound]
warn_share = 0.3
```
"""


def rules_page() -> str:
    """docs/reference/rules.md."""
    policy = Policy.load()
    parts = [_HEAD, "## Rules\n"]
    parts += [_section(rule.kind, rule.about, policy.of(rule.part), rule.part) for rule in RULES]
    parts.append("## Thresholds shared by several rules\n")
    parts += [_table(part, policy.of(part)) for part in shared_parts(policy)]
    return "\n".join(parts)


def _section(title: str, about: str, thresholds: list[Threshold], part: str) -> str:
    return "\n".join([f"### {title}\n", about, "", *([_table(part, thresholds)] if thresholds else [])])


def _table(part: str, thresholds: list[Threshold]) -> str:
    rows = [f"| `{one.name.partition('.')[2]}` | {one.value:g} {one.unit} | {one.doc} |" for one in thresholds]
    return "\n".join([f"| `[{part}]` | | |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    (ROOT / "docs/reference/rules.md").write_text(rules_page())
