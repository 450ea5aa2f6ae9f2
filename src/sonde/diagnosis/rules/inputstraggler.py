"""INPUT_STRAGGLER: the ranks wait for one that waits for its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.files import named
from sonde.diagnosis.stragglers import INPUT, straggling

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.stragglers import Late
    from sonde.finding import Finding


def input_straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one rank, which waits longer for its data."""
    next = "Check the loader of {}: its disk, its share of the data and its workers."

    def does(late: Late) -> str:
        return f"waits {units.duration(late.more_ns)} longer for {_data(facts, late.rank.rank)}"

    return straggling(facts, policy, "INPUT_STRAGGLER", INPUT, does, next)


def _data(facts: Facts, rank: int | None) -> str:
    """Its data; where files were watched, the file that it waits for most."""
    found = facts.files.ranks.get(rank)
    return "its data" if found is None else f"its data, mainly {named(*found, facts.files.items['bytes'].value)}"
