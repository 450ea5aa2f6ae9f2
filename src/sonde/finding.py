"""A finding: what was found, how sure it is, why, and what to do next. Plain data for flow and diagnosis."""

from __future__ import annotations

from typing import Any, NamedTuple

INFO, WARN, CRITICAL = "info", "warn", "critical"
SEVERITIES = (INFO, WARN, CRITICAL)  # the mildest first


class Finding(NamedTuple):
    """One finding. `evidence` holds what JSON can hold: names, numbers, texts, and lists of them."""

    kind: str  # what sort of thing, as one fixed word: "nonfinite", "shapes", ...
    severity: str  # one of SEVERITIES
    confidence: float  # 0 to 1: how likely it is what it looks like
    why: str  # what was seen, where, with which values
    next: str  # what to do about it
    evidence: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.severity}: {self.why} {self.next}"


def weight(finding: Finding) -> tuple[int, float]:
    """A key to sort with, the gravest first."""
    return -SEVERITIES.index(finding.severity), -finding.confidence
