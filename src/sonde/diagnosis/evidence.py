"""Puts a finding together: its severity by share and absolute floor, its numbers with the queries that reproduce them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.diagnosis.figures import NOTHING, Figure
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.learning.layers import Activation
    from sonde.diagnosis.policy import Policy

PHASE_WORDS = {
    "input_wait": "waiting for data",
    "h2d": "copying to the device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer",
    "communication": "communication",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
    "residual": "untracked code",
}


OUTPUTS = {"dead": "dead units", "zeros": "zeros", "saturated": "saturated"}


@dataclass(frozen=True)
class Rule:
    """A rule: the kind of what it finds, its part of the policy, and the function. `about`: what it looks for."""

    kind: str
    part: str
    find: Callable[[Facts, Policy], Finding | None]

    @property
    def about(self) -> str:
        """The first sentence of the function."""
        return (self.find.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")


def finding(
    kind: str,
    severity: str,
    confidence: float,
    why: str,
    next: str,
    *,
    score: float | None = None,
    figures: Mapping[str, Figure] | None = None,
    **more: Any,
) -> Finding:
    """A finding. `score`: the share of the time that it costs; `more` goes into the evidence as it is."""
    known = {name: one for name, one in (figures or {}).items() if one is not NOTHING}
    evidence = {
        "score": score,
        "numbers": {name: one.value for name, one in known.items()},
        "queries": {name: one.query for name, one in known.items()},
        **more,
    }
    return Finding(kind, severity, confidence, why, next, evidence)


def graded(policy: Policy, part: str, share: Figure, ns: Figure | float | None) -> str | None:
    """The severity of a share with its absolute floor, after `<part>.warn_share`, `.warn_ms` and the same for critical."""
    absolute = ns.value if isinstance(ns, Figure) else ns
    if share.value is None or absolute is None:
        return None
    for severity in (CRITICAL, WARN):
        enough = absolute >= 1e6 * policy[f"{part}.{severity}_ms"]
        if share.value >= policy[f"{part}.{severity}_share"] and enough:
            return severity
    return None


def idle_outputs(
    facts: Facts, kind: str, found: list[Activation], figure: str, critical: float, what: str, next: str, *more: str
) -> Finding | None:
    """The finding on layers most of whose outputs carry nothing: `figure` is their share, `more` are further figures."""
    if not found:
        return None
    worst = max(found, key=lambda one: one.figures[figure].or_zero())
    share = worst.figures[figure].or_zero()
    others = f" {units.plural(len(found) - 1, 'other layer is', 'other layers are')} similar." if len(found) > 1 else ""
    return finding(
        kind,
        CRITICAL if share >= critical else WARN,
        0.85,
        f"{units.share(share)} of the {what.format(layer=worst.name.partition('/')[2])}, in a median sample of the later half.{others}",
        next,
        score=1.0,
        figures={
            "sampled steps": facts.learning.layers.samples,
            **{OUTPUTS[one]: worst.figures[one] for one in (figure, *more)},
        },
        layers=[one.name for one in found],
    )


def heavy(facts: Facts, policy: Policy, kind: str, phase: str, what: str, next: str) -> Finding | None:
    """A phase that comes now and then, and takes too large a share of the whole time; `what` it is begins the sentence."""
    total, whole = facts.speed.whole[phase], facts.speed.whole["whole"]
    part, first = kind.lower(), facts.speed.startup.get(phase)
    lazy = 0.0 if first is None else first.excess  # start-up is not what makes it heavy
    spent, all_of_it = total.or_zero() - lazy, whole.or_zero() - lazy
    if spent < 1e9 * policy[f"{part}.least_s"] or all_of_it <= 0:
        return None
    share = spent / all_of_it
    if share < policy[f"{part}.warn_share"]:
        return None
    times = facts.speed.whole[f"{phase}_steps"]
    but = "" if first is None else f" without its start-up ({units.duration(lazy)})"
    return finding(
        kind,
        CRITICAL if share >= policy[f"{part}.critical_share"] else WARN,
        0.9,
        f"{what} took {units.duration(spent)} of {units.duration(all_of_it)} ({units.share(share)}){but}, in {units.plural(times.or_zero(), 'step')}.",
        next,
        score=share,
        figures={f"{phase} ns": total, "total time ns": whole, "steps that waited for it": times},
    )


def enough_steps(facts: Facts, policy: Policy) -> bool:
    """Whether there are enough steps to say something about speed."""
    known = any(rank.steps.or_zero() for rank in facts.speed.ranks)  # not only steps in which workers start
    return known and facts.speed.steps.at_least(policy["steps.least"])


def correlation(values: list[float]) -> float:
    """Spearman's: 1 where each value is above the one before, -1 where each is below. Equal ones share their place."""
    number = len(values)
    places = [sum(other < one for other in values) + (values.count(one) - 1) / 2 for one in values]
    middle = (number - 1) / 2
    spread = sum((place - middle) ** 2 for place in places)
    if not spread:
        return 0.0
    whole = sum((position - middle) ** 2 for position in range(number))
    together = sum((place - middle) * (position - middle) for position, place in enumerate(places))
    return float(together / (spread * whole) ** 0.5)


def rank_word(rank: int | None) -> str:
    """`rank 3`; a process without one is the process."""
    return "the process" if rank is None else f"rank {rank}"
