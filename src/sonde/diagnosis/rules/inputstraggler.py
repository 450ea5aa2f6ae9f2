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
    """The other ranks wait for one rank, or for those of a host, because of longer waits for data."""
    next = "Check the loader of {}: its disk, its share of the data and its workers."

    def does(late: Late) -> str:
        return f"wait{late.verb} {units.duration(late.more_ns)} longer for {_data(facts, late)}"

    return straggling(facts, policy, "INPUT_STRAGGLER", INPUT, does, next)


def _data(facts: Facts, late: Late) -> str:
    """Its data; where files were watched, the file that it waits for most, else the slowest items in its slowest steps."""
    found = next((one for rank in late.ranks if (one := facts.files.ranks.get(rank.rank)) is not None), None)
    if found is not None:
        return f"data, mainly {named(*found, facts.files.items['bytes'].value)}"
    items = [f"{one.name} ({units.duration(one.dur_ns)})" for one in late.items]
    if not items:
        return "data"
    return f"data, mainly item{'s' if len(items) > 1 else ''} {units.listed(items)}"
