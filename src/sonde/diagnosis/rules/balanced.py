"""BALANCED: nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.drops import QUERY, REMEDY, drops_for_space, lost_for_space
from sonde.diagnosis.evidence import PHASE_WORDS, enough_steps, finding
from sonde.diagnosis.figures import Figure
from sonde.finding import INFO, Finding

# The rule that looks at the share of a phase.
OF_PHASE = {
    "input_wait": "input_bound",
    "h2d": "h2d_bound",
    "communication": "comm_bound",
    "residual": "residual_heavy",
}

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def balanced(facts: Facts, policy: Policy) -> Finding | None:
    """Enough steps were recorded, and no other rule found a speed problem."""
    if not enough_steps(facts, policy) or not facts.speed.ranks or facts.speed.train is None:
        return None
    rank = facts.speed.ranks[0]
    shares = {phase: facts.speed.shown(phase).or_zero() for phase in facts.speed.phases}
    largest = max(shares, key=lambda phase: shares[phase], default=None)
    if largest is None:
        return None
    shown = facts.speed.shown(largest)
    figures = {"mean step ns": facts.speed.train.mean, f"{largest}, share of the step time": shown}
    part = f"{PHASE_WORDS[largest]} ({units.share(shown.value)})"
    why = f"No problem found: a step takes {units.duration(facts.speed.train.mean.value)} on average. Its largest part is {part}."
    next = "Nothing to fix. To make the model faster, see its layers with `sonde deep`."
    crowded = facts.health.crowded_host(policy)
    excuse = _excuse(facts, policy, largest, rank.usual[largest])
    if excuse is not None:
        why = f"Inconclusive: {units.share(shown.value)} of the step time is {PHASE_WORDS[largest]}, {excuse}."
    if crowded is not None:
        figures |= crowded.loads
        why += f" {crowded.load_sentence[:1].upper()}{crowded.load_sentence[1:]}. They may cause single slow steps, items and waits."
        next = "Run it again on an idle host."
    lost = facts.ends.lost
    if drops_for_space(lost):
        figures["records lost"] = Figure(lost.total, QUERY)
        why = f"{lost_for_space(lost)}In the remaining records, {why[0].lower()}{why[1:]}"
        next = REMEDY
    doubted = crowded is not None or excuse is not None or bool(drops_for_space(lost))
    return finding("BALANCED", INFO, 0.5 if doubted else 0.8, why, next, score=0.0, figures=figures)


def _excuse(facts: Facts, policy: Policy, phase: str, usual: Figure) -> str | None:
    """Why a large share of a phase that is no computing is no finding; None: it is small, or computing."""
    part = OF_PHASE.get(phase)
    if part is None or facts.speed.shown(phase).or_zero() < policy[f"{part}.warn_share"]:
        return None
    least = policy[f"{part}.warn_ms"]
    if phase == "communication" and facts.speed.distributed:  # without waiting for each other
        usual = facts.speed.together["least"]
    if usual.or_zero() < 1e6 * least:
        what = "the exchange itself" if facts.speed.distributed and phase == "communication" else "that"
        return f"but {what} is only {units.duration(usual.or_zero())} in a median step (the threshold is {least:g} ms)"
    if facts.health.crowded(policy):
        return "but the host is busy"
    return f"but half of the steps have at most {units.duration(facts.speed.phases[phase].p50.value)} of it"
