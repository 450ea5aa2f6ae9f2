"""LOSS_SPIKE: the loss of a few steps is far above those around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


SHOWN = 4  # items that are named


def loss_spike(facts: Facts, policy: Policy) -> Finding | None:
    """The loss of a few steps is far above the losses around them. Names the items of the batch."""
    curve = facts.learning.curve
    if not curve.spikes or facts.learning.explores(policy["loss_not_decreasing.acting"]):
        return None
    share = curve.spiked.or_zero() / max(1.0, curve.losses.or_zero())
    if share > policy["loss_spike.most_share"]:  # that is how this loss scatters
        return None
    worst = curve.spikes[0]
    named = ", ".join(map(str, worst.items[:SHOWN])) + (", ..." if len(worst.items) > SHOWN else "")
    often = [item for item in dict.fromkeys(worst.items) if sum(item in one.items for one in curve.spikes) > 1]
    items = f" Its batch holds items {named}." if worst.items else ""
    again = f" Item {often[0]} is in several of these batches." if often and len(often) <= SHOWN else ""
    return finding(
        "LOSS_SPIKE",
        WARN,
        0.85,
        f"{units.plural(curve.spiked.or_zero(), 'loss is', 'losses are')} far above the others. Worst: {units.brief(worst.loss)} "
        f"in step {worst.step}, median {units.brief(worst.usual)}.{items}{again}",
        f"Look at {'item ' + str(often[0]) if again else f'the batch of step {worst.step}'}; clip gradients if its data is fine.",
        score=0.5,
        figures={"spikes": curve.spiked, "losses": curve.losses, "first losses": curve.begin},
        steps=[one.step for one in curve.spikes],
        items=worst.items,
        suspects=often,
    )
