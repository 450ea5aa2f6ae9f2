"""RESIDUAL_HEAVY: time goes into code that belongs to no phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding, graded

KNOWN = 0.5  # of the time outside of phases: what a name must explain of it
BYPASSED = 0.2  # of backward: a model whose forward is shorter is called in another way

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.figures import Figure
    from sonde.diagnosis.policy import Policy
    from sonde.diagnosis.samples import HotLine
    from sonde.finding import Finding


def residual_heavy(facts: Facts, policy: Policy) -> Finding | None:
    """The median rank spends a large share of its training time in untracked code."""
    share, lasting = facts.speed.middle("residual")
    severity = graded(policy, "residual_heavy", share, lasting)
    if severity is None or not enough_steps(facts, policy):
        return None
    shown = facts.speed.shown("residual")
    named = next(iter(facts.speed.named.items()), None)
    known = named is not None and named[1].or_zero() >= KNOWN * facts.speed.whole["residual"].or_zero()
    line = facts.lines.leading
    if line is not None and not known:
        return _sampled(facts, severity, line, share, lasting, shown)
    return finding(
        "RESIDUAL_HEAVY",
        severity,
        0.9 if known else 0.7,
        f"Steps spend {units.duration(facts.speed.each('residual'))} in untracked code on average, {units.share(shown.value)} of the "
        "step time. " + (_called(facts, *named) if known and named is not None else _unseen(facts)),
        f"Make `{named[0]}` cheaper, or do it less often."
        if known and named is not None
        else "Check what the loop does between its phases. `sonde run --sample` names the lines; sonde.span(name) marks parts of it.",
        score=share.value,
        figures={
            "share of the step time": shown,
            "share of the training time in a median step": share,
            "untracked in a median step ns": lasting,
            **({f"{named[0]} ns": named[1]} if named is not None else {}),
        },
        spans=list(facts.speed.named),
    )


def _sampled(facts: Facts, severity: str, line: HotLine, share: Figure, lasting: Figure, shown: Figure) -> Finding:
    """Nobody has put a span there, but stacks were sampled."""
    return finding(
        "RESIDUAL_HEAVY",
        severity,
        0.9,
        f"Steps spend {units.duration(facts.speed.each('residual'))} in untracked code on average, {units.share(shown.value)} of the "
        f"step time. {units.share(facts.lines.share(line))} of it is in {line}.",
        f"Make {line.function} cheaper, or do it less often.",
        score=share.value,
        figures={
            "share of the step time": shown,
            "share of the training time in a median step": share,
            "untracked in a median step ns": lasting,
            "sampled in untracked code ns": facts.lines.total,
            **{f"{one} ns": one.time for one in facts.lines.top},
        },
        lines=[{"function": one.function, "file": one.file, "line": one.line} for one in facts.lines.top],
    )


def _called(facts: Facts, name: str, total: Figure) -> str:
    return f"{units.share(min(1.0, total.or_zero() / max(1.0, facts.speed.whole['residual'].or_zero())))} of it is `{name}`."


def _unseen(facts: Facts) -> str:
    """What such time may be, as far as it is not named."""
    if "optimizer" not in facts.speed.phases:
        return "No torch optimizer was seen: your own update code is part of it."
    forward, backward = (facts.speed.phases.get(phase) for phase in ("forward", "backward"))
    if backward is not None and (forward is None or forward.p50.or_zero() < BYPASSED * backward.p50.or_zero()):
        seen = (
            "No forward was seen"
            if forward is None
            else f"Only {units.duration(forward.p50.value)} of forward was seen"
        )
        return (
            f"{seen}, but {units.duration(backward.p50.value)} of backward: calls of model.forward(x) are not tracked."
        )
    return "It may be logging, metrics, .item(), a reinforcement-learning environment, or data that the loop moves."
