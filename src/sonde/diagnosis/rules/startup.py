"""WORKER_STARTUP: loader workers are restarted in each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def worker_startup(facts: Facts, policy: Policy) -> Finding | None:
    """Restarting loader workers for each epoch takes a large share of the total time."""
    startup, whole = facts.loading.startup, facts.speed.whole["whole"]
    starts = startup["times"].or_zero()
    usual = starts * facts.loading.batches["fetch"].or_zero()  # the first batch of a round has to be made, too
    lost = startup["total"].or_zero() - usual
    if not whole.value or starts < policy["worker_startup.least_starts"]:
        return None
    share = lost / whole.value
    if share < policy["worker_startup.warn_share"] or lost / starts < 1e6 * policy["worker_startup.least_ms"]:
        return None
    return finding(
        "WORKER_STARTUP",
        CRITICAL if share >= policy["worker_startup.critical_share"] else WARN,
        0.9,
        f"Loader workers were restarted {units.plural(starts, 'time')}, {units.duration(lost / starts)} each: {units.share(share)} of the "
        "total time.",
        "Set persistent_workers=True in the DataLoader to keep its workers between epochs.",
        score=share,
        figures={
            "starts": startup["times"],
            "starts and first batches ns": startup["total"],
            "one start and first batch ns": startup["each"],
            "total time ns": whole,
        },
    )
