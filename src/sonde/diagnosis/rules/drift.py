"""STEP_DRIFT: training becomes slower and slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import PHASE_WORDS, correlation, enough_steps, finding
from sonde.diagnosis.speed import SEGMENTS, TRAIN
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def step_drift(facts: Facts, policy: Policy) -> Finding | None:
    """Steps get slower and slower during the run."""
    rows = facts.speed.segments
    enough = facts.speed.steps.at_least(policy["step_drift.least_steps"])
    if not enough or len(rows) != SEGMENTS or not enough_steps(facts, policy):
        return None
    course = [row[TRAIN].or_zero() for row in rows]
    first, last = (course[0] + course[1]) / 2, (course[-2] + course[-1]) / 2
    if first <= 0 or last < first * policy["step_drift.warn_ratio"]:
        return None
    if last - first < 1e6 * policy["step_drift.least_ms"] or correlation(course) < policy["step_drift.order"]:
        return None
    grown = {
        name: rows[-1][name].or_zero() - rows[0][name].or_zero() for name in rows[0] if name not in (TRAIN, "steps")
    }
    phase = max(grown, key=lambda name: grown[name])
    if _host_slower(facts, policy, phase):
        return None
    return finding(
        "STEP_DRIFT",
        WARN,
        0.85,
        f"Steps became {units.times(last / first)} as long during the run, from {units.duration(first)} to {units.duration(last)}. The increase is "
        f"in {PHASE_WORDS[phase]}.",
        "Look for what grows with each step: a list that is never cleared, a retained graph, a cache, a hot device.",
        score=1 - first / last,
        figures={
            **{f"median step in tenth {place + 1} ns": row[TRAIN] for place, row in enumerate(rows)},
            f"{phase} in tenth 1 ns": rows[0][phase],
            f"{phase} in tenth {SEGMENTS} ns": rows[-1][phase],
        },
        phase=phase,
    )


def _host_slower(facts: Facts, policy: Policy, phase: str) -> bool:
    """On a host whose cores others use, all phases grow when those become more: so much is taken off the one that grew most."""
    if not facts.health.crowded(policy):
        return False
    first, last = facts.speed.segments[0], facts.speed.segments[-1]
    # Medians do not add up: the step less this phase would hold the scatter of this phase too.
    before, after = (
        sum(row[name].or_zero() for name in row if name not in (TRAIN, "steps", phase)) for row in (first, last)
    )
    slower = max(1.0, after / before) if before > 0 else 1.0
    more = last[phase].or_zero() / slower - first[phase].or_zero()
    return more < first[TRAIN].or_zero() * (policy["step_drift.warn_ratio"] - 1)
