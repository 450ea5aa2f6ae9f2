"""INPUT_STRAGGLER: the ranks wait for one that waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.stragglers import INPUT, straggling

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.stragglers import Late
    from sonde.finding import Finding


def input_straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one rank, which waits longer for its data."""
    next = "Check the loader of {}: its disk, its share of the data and its workers."
    return straggling(facts, policy, "INPUT_STRAGGLER", INPUT, _does, next)


def _does(late: Late) -> str:
    return f"waits {units.duration(late.more_ns)} longer for its data"
