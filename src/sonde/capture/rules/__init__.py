"""Findings in the values of a trace: all rules in one list, one per file, each a pure function of the observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.capture.rules.constant import constant
from sonde.capture.rules.dtypes import dtypes
from sonde.capture.rules.duplicates import repeated
from sonde.capture.rules.mutated import changed
from sonde.capture.rules.nonfinite import nonfinite
from sonde.capture.rules.noop import idle
from sonde.capture.rules.observations import Sights, look
from sonde.capture.rules.ranges import ranges
from sonde.capture.rules.shapes import shapes
from sonde.finding import weight
from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.finding import Finding

RULES: tuple[Callable[[Sights], list[Finding]], ...] = (
    changed,
    nonfinite,
    idle,
    constant,
    repeated,
    dtypes,
    ranges,
    shapes,
)


def find(result: Any) -> list[Finding]:
    """The findings of a result, the gravest first. A rule that fails costs only its own findings."""
    found: list[Finding] = []
    with guard("reading the values of a trace"):
        seen = look(result)
        for rule in RULES:
            with guard(f"checking for findings ({rule.__name__})"):
                found += rule(seen)
    return sorted(found, key=weight)
