"""COMPUTE_STRAGGLER: the ranks wait for one that computes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import PHASE_WORDS
from sonde.diagnosis.stragglers import COMPUTE, straggling

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.stragglers import Late
    from sonde.finding import Finding


def compute_straggler(facts: Facts, policy: Policy) -> Finding | None:
    """The other ranks wait for one rank, or for those of a host, because of longer computing."""
    next = "Check the device and host of {}: is it slower, shared or hot, or are its batches larger?"
    return straggling(facts, policy, "COMPUTE_STRAGGLER", COMPUTE, _does, next)


def _does(late: Late) -> str:
    return f"compute{late.verb} longer, mostly in {PHASE_WORDS[late.phase or 'forward']}"
