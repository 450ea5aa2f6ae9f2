"""STEP_SPIKES: some steps take several times the median step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import PHASE_WORDS, enough_steps, finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def step_spikes(facts: Facts, policy: Policy) -> Finding | None:
    """Some steps take several times the median step, and together cost a noticeable share of the training time."""
    spikes, train = facts.speed.spikes, facts.speed.train
    if train is None or not enough_steps(facts, policy) or not spikes.steps.at_least(policy["step_spikes.least_steps"]):
        return None
    whole = train.total.or_zero() / max(1, len(facts.speed.ranks))
    share = spikes.lost.or_zero() / whole if whole else 0.0
    excess = {phase: figure.or_zero() for phase, figure in spikes.excess.items()}
    phase = max(excess, key=lambda name: excess[name])
    if share < policy["step_spikes.warn_share"] or _chance(facts, policy, excess, phase):
        return None
    slowest = sorted(facts.speed.slowest, key=lambda step: -step.train_ns)
    listed = list(dict.fromkeys(step.step for step in slowest if step.train_ns >= (spikes.least_ns or 0)))
    late = facts.waits.latest((spikes.least_ns or 0.0) / 2) if phase == "communication" else None
    waiting, of = ("", "") if late is None else (f": the others wait for rank {late.rank}", f" of rank {late.rank}")
    return finding(
        "STEP_SPIKES",
        WARN,
        0.85,
        f"{units.plural(spikes.steps.or_zero(), 'step takes', 'steps take')} over {units.duration(spikes.least_ns)} (median step "
        f"{units.duration(train.p50.value)}). The excess is {units.share(share)} of the training time, mostly in "
        f"{PHASE_WORDS[phase]}{waiting}. Slowest: step {listed[0]}.",
        f"Check step {listed[0]}{of}: what else happens in it, and whether spikes recur at regular intervals.",
        score=share,
        figures={
            "spikes": spikes.steps,
            "excess in spikes ns": spikes.lost,
            "median step ns": train.p50,
            "all training ns": train.total,
            **{f"{name}, excess in spikes ns": figure for name, figure in spikes.excess.items()},
        },
        steps=listed,
        ranks=[late.rank] if late else sorted({step.rank for step in slowest if step.rank is not None}),
        phase=phase,
    )


def _chance(facts: Facts, policy: Policy, excess: dict[str, float], phase: str) -> bool:
    """On a host whose cores others use, a step may lose its core anywhere: then a phase has of spikes what it has of steps."""
    train, whole = facts.speed.train, sum(excess.values())
    if train is None or whole <= 0 or not facts.health.crowded(policy):
        return False
    if phase == "input_wait":  # a worker may lose its core as well; items that are slow themselves have a rule
        return True
    usual = facts.speed.phases[phase].p50.or_zero() / max(1.0, train.p50.or_zero())
    return excess[phase] / whole - usual < policy["step_spikes.crowded_more"]
