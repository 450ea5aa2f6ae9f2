"""GC_PAUSES: Python collects garbage while training waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def gc_pauses(facts: Facts, policy: Policy) -> Finding | None:
    """Garbage collection takes a noticeable share of the time, with long pauses."""
    garbage = facts.health.garbage
    share, total = garbage["share"], garbage["total"]
    if not share.at_least(policy["gc_pauses.warn_share"]) or not total.at_least(1e9 * policy["gc_pauses.least_s"]):
        return None
    if not garbage["most"].at_least(1e6 * policy["gc_pauses.least_ms"]):
        return None
    return finding(
        "GC_PAUSES",
        CRITICAL if share.at_least(policy["gc_pauses.critical_share"]) else WARN,
        0.9,
        f"Python garbage collection took {units.duration(total.value)} ({units.share(share.value)} of the time), in "
        f"{units.plural(garbage['steps'].or_zero(), 'step')}, up to {units.duration(garbage['most'].value)} in one step.",
        "Call gc.freeze() after set-up, keep fewer objects alive, and do not call gc.collect() in the loop.",
        score=share.value,
        figures={
            "share of the time": share,
            "collecting ns": total,
            "most in a step ns": garbage["most"],
            "steps with a collection": garbage["steps"],
        },
    )
