"""The page of rules, `docs/reference/rules.md`, made of the rules and the policy themselves. `python -m sonde.diagnosis.document`."""

from __future__ import annotations

from sonde.diagnosis.policy import Policy, Threshold
from sonde.diagnosis.rules import RULES

_HEAD = """# The rules of the diagnosis

This page is generated (`make docs`) from `src/sonde/diagnosis/rules` and `policy.toml`.

Rules compare facts with thresholds. Facts are numbers from queries over the [tables](tables.md). Each finding contains
its queries; run them again to get the printed numbers.

- **Medians decide**, over blocks of consecutive steps. A loader with n workers delivers in bursts, so single steps wait
  for very different times. Warm-up steps are left out, and so are steps in which loader workers start.
- **Every share has an absolute minimum** beside it: half of a 0.3 ms step is not worth a warning.
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


def document() -> str:
    """The page."""
    policy = Policy.load()
    parts = [_HEAD, "## Rules\n"]
    parts += [_section(rule.kind, rule.about, policy.of(rule.part), rule.part) for rule in RULES]
    parts.append("## Thresholds shared by several rules\n")
    parts += [_table(part, policy.of(part)) for part in shared(policy)]
    return "\n".join(parts)


def shared(policy: Policy) -> list[str]:
    """The parts of the policy that belong to no single rule."""
    return [part for part in policy.parts if part not in {rule.part for rule in RULES}]


def _section(title: str, about: str, thresholds: list[Threshold], part: str) -> str:
    return "\n".join([f"### {title}\n", about, "", *([_table(part, thresholds)] if thresholds else [])])


def _table(part: str, thresholds: list[Threshold]) -> str:
    rows = [f"| `{one.name.partition('.')[2]}` | {number(one.value)} {one.unit} | {one.doc} |" for one in thresholds]
    return "\n".join([f"| `[{part}]` | | |", "|---|---|---|", *rows, ""])


def number(value: float) -> str:
    """A threshold as it is written in the policy."""
    return f"{value:g}"


if __name__ == "__main__":
    print(document(), end="")
