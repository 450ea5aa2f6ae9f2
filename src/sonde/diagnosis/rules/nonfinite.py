"""NON_FINITE: the loss is no number any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.diagnosis.evidence import finding
from sonde.diagnosis.wording import several
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def non_finite(facts: Facts, policy: Policy) -> Finding | None:
    """A loss that went into backward was NaN or infinite."""
    losses = facts.health.losses
    bad = losses.bad.or_zero()
    if not bad or losses.first.value is None:
        return None
    lasting = losses.last_bad.or_zero() > 0 or bad >= policy["non_finite.critical_losses"]
    where = "" if losses.rank is None else f" of rank {losses.rank}"
    return finding(
        "NON_FINITE",
        CRITICAL if lasting else WARN,
        1.0,
        f"The loss is NaN or infinite in {several(bad, 'step')} of {several(losses.seen.or_zero(), 'step')}, "
        f"for the first time in step {losses.first.value:.0f}{where}.",
        f"Look at the data and the learning rate of step {losses.first.value:.0f}; "
        "`sonde.flow.trace` shows the values that go into it.",
        failure=lasting,
        figures={
            "losses that are no numbers": losses.bad,
            "losses": losses.seen,
            "first step": losses.first,
            "of the last ten": losses.last_bad,
        },
        steps=[int(losses.first.value)],
        ranks=[] if losses.rank is None else [losses.rank],
    )
