"""NON_FINITE: the loss, or a value that leads to it, is NaN or infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde import units
from sonde.diagnosis.advice import is_guessed, what_to_do
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.figures import Figure
from sonde.finding import CRITICAL, WARN, Finding
from sonde.store.certificate import announcement

if TYPE_CHECKING:
    from sonde.analysis.postmortem.firstnan import Birth
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.health import LossFacts
    from sonde.diagnosis.policy import Policy

GUESSED = 0.7  # the confidence where the operation is known by its name alone
STOPPED = "NonFinite"  # the exception with which the watch ends a program that wants it


def non_finite(facts: Facts, policy: Policy) -> Finding | None:
    """A loss or another watched value was NaN or infinite. Names the layer, batch and item that produced it."""
    losses = facts.health.losses
    birth = next(iter(facts.box.births), None)
    bad = losses.bad.or_zero() if losses.first.value is not None else 0
    if not bad and birth is None:
        return None
    stopped = any((end.exception or "").endswith(STOPPED) for end in facts.ends.processes)
    lasting = stopped or losses.last_bad.or_zero() > 0 or bad >= policy["non_finite.critical_losses"]
    why = [
        *([] if birth is None else [announcement(birth.certificate, birth.process, birth.counter)]),
        *([_lost(losses)] if bad else []),
    ]
    return finding(
        "NON_FINITE",
        CRITICAL if lasting else WARN,
        GUESSED if birth is not None and is_guessed(birth.certificate) else 1.0,
        " ".join(why),
        _next(losses) if birth is None else f"{what_to_do(birth.certificate)}. Details: sonde blackbox {facts.run}",
        failure=lasting,
        figures=_figures(losses, birth),
        stopped=stopped,
        steps=_steps(losses, birth),
        ranks=_ranks(losses, birth),
        **_of(birth),
    )


def _lost(losses: LossFacts) -> str:
    where = "" if losses.rank is None else f" of rank {losses.rank}"
    return (
        f"The loss is NaN or infinite in {losses.bad.or_zero():,.0f} of {units.plural(losses.seen.or_zero(), 'step')}, "
        f"starting at step {losses.first.or_zero():.0f}{where}."
    )


def _next(losses: LossFacts) -> str:
    return (
        f"Check the data and the learning rate of step {losses.first.or_zero():.0f}. `sonde run --blackbox "
        "--watch-nonfinite` finds the layer and item that produced the first NaN."
    )


def _figures(losses: LossFacts, birth: Birth | None) -> dict[str, Figure]:
    figures = {
        "non-finite losses": losses.bad,
        "losses": losses.seen,
        "first step": losses.first,
        "of the last ten": losses.last_bad,
    }
    known = {name: figure for name, figure in figures.items() if figure.value is not None}
    if birth is not None and birth.query is not None and birth.certificate.step is not None:
        known["step of the first NaN"] = Figure(birth.certificate.step, birth.query)
    return known


def _steps(losses: LossFacts, birth: Birth | None) -> list[int]:
    if birth is not None and birth.certificate.step is not None:
        return [birth.certificate.step]
    return [] if losses.first.value is None else [int(losses.first.value)]


def _ranks(losses: LossFacts, birth: Birth | None) -> list[int]:
    rank = losses.rank if birth is None else birth.rank
    return [] if rank is None else [rank]


def _of(birth: Birth | None) -> dict[str, Any]:
    """What the certificate says, for those who want to go on from here."""
    if birth is None:
        return {"layers": [], "items": []}
    one = birth.certificate
    return {
        "layers": [] if one.layer is None else [one.layer],
        "items": [{"index": item.index, "id": item.id, "position": item.position} for item in one.items],
        "where": one.where,
        "stage": one.stage,
        "producer": one.producer,
        "batch": one.batch_number,
        "dump": birth.dump,
    }
