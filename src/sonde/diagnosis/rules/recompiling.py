"""RECOMPILING: torch.compile compiles the same function again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy

WITHIN = "/torch/"  # in the file of what torch puts around a module of its own


def recompiling(facts: Facts, policy: Policy) -> Finding | None:
    """torch.compile compiles the same functions again and again, and training waits for it."""
    found, whole = facts.recompiles, facts.speed.whole["whole"]
    worst = next(iter(found.functions), None)
    if worst is None or worst.times < policy["recompiling.least"] or not whole.or_zero():
        return None
    excess = found.figures["excess"].or_zero()
    share = min(1.0, excess / whole.or_zero())
    if share < policy["recompiling.warn_share"] or excess < 1e9 * policy["recompiling.least_s"]:
        return None
    reason = "" if worst.reason is None else f" Last reason: {_short(worst.reason)}."
    name = "the model" if WITHIN in worst.file else f"{worst.function} (line {worst.line})"
    return finding(
        "RECOMPILING",
        CRITICAL if share >= policy["recompiling.critical_share"] else WARN,
        0.9,
        f"torch.compile compiled {name} again {worst.times} times. All recompiles took "
        f"{units.duration(excess)} ({units.share(share)} of the time).{reason}",
        "Use torch.compile(dynamic=True) or mark_dynamic for changing shapes, and keep changing Python numbers out of the model.",
        score=share,
        figures={
            "recompiles": found.figures["count"],
            "steps with one": found.figures["steps"],
            "excess of these ns": found.figures["excess"],
            "total time ns": whole,
        },
        functions=[
            {"function": one.function, "file": one.file, "line": one.line, "times": one.times, "reason": one.reason}
            for one in found.functions
        ],
    )


def _short(reason: str) -> str:
    """Without the number of the entry before it, and the code behind it."""
    return (reason.partition(": ")[2] or reason).partition("  #")[0].rstrip(". ")
