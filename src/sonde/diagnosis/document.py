"""The page of rules, `docs/reference/rules.md`, made of the rules and the policy themselves. `python -m sonde.diagnosis.document`."""

from __future__ import annotations

from sonde.diagnosis.policy import Policy, Threshold
from sonde.diagnosis.rules import RULES

_HEAD = """# The rules of the diagnosis

This page is generated (`make docs`) from `src/sonde/diagnosis/rules` and `policy.toml`.

A verdict is made of facts, and facts are numbers that a query over the [tables](tables.md) gives: each finding brings its
queries along, and asking them again gives the printed numbers. Rules only compare facts with thresholds.

- **Medians decide**, over blocks of consecutive steps: a loader with n workers delivers in bursts, and single steps wait not
  at all or long. The first steps (warm-up) are left out, and so are steps in which loader workers start.
- **Every share has an absolute floor** beside it: half of a step of 0.3 ms is nothing to worry about.
- **One share is shown**: of all step time after the warm-up, in the verdict as in the table. Thresholds are compared with medians.
- Where a **device** has times of its own, it decides: what the host waits for while the device works costs nothing.
- The *training time* of a step is without evaluation and checkpoints; the *whole time* is with them, and with the warm-up.
- What is not known is no evidence: without it a rule says nothing.
- One finding is the verdict: failures first, then the graver one, then what costs more. A cause stands before what it explains.

`sonde rules` prints the list, `sonde report --policy FILE` judges by your own thresholds. Such a file has only what it changes:

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
    parts.append("## Thresholds of no single rule\n")
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
