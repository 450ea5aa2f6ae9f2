"""COLD_READS: items that come from the disk take much longer than cached ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.figures import Figures
    from sonde.diagnosis.policy import Policy


def cold_reads(facts: Facts, policy: Policy) -> Finding | None:
    """Items read from the disk take much longer than items from the page cache, and training waits for them. Needs `--io`."""
    cold, whole = facts.files.cold, facts.speed.whole["whole"].or_zero()
    loads, cached = cold["cold"].or_zero(), cold["cached"].or_zero()
    if not whole or min(loads, cached) < policy["cold_reads.least"]:
        return None
    slow, usual = cold["cold_p50"].or_zero(), cold["cached_p50"].or_zero()
    excess = (cold["cold_total"].or_zero() - loads * usual) / max(1, len(facts.speed.ranks))
    waited = facts.speed.whole["input_wait"]
    cost = min(waited.or_zero(), excess) / whole
    if slow < policy["cold_reads.times"] * usual or excess < 1e9 * policy["cold_reads.least_s"]:
        return None
    if cost < policy["cold_reads.warn_share"]:
        return None
    share = cold["disk"].or_zero() / max(1.0, cold["bytes"].or_zero())
    where, next = _advice(cold, policy)
    return finding(
        "COLD_READS",
        WARN,
        0.8,
        f"An item takes {units.duration(slow)} to load from the disk and {units.duration(usual)} from the page cache. "
        f"{units.share(share)} of the bytes came from the disk, {where}.",
        next,
        score=cost,
        figures={
            "loads from the disk": cold["cold"],
            "their median ns": cold["cold_p50"],
            "cached loads": cold["cached"],
            "median of cached loads ns": cold["cached_p50"],
            "bytes read": cold["bytes"],
            "bytes from the disk": cold["disk"],
            "loads from the disk in later epochs": cold["later"],
            "waiting for data ns": waited,
        },
    )


def _advice(cold: Figures, policy: Policy) -> tuple[str, str]:
    """When items came from the disk, and what to do."""
    if cold["epochs"].or_zero() < 2:
        return "in the only epoch", "Copy the files to a faster disk, or read them once before training."
    later = cold["later"].or_zero() / max(1.0, cold["cold"].or_zero())
    if later < policy["cold_reads.later_share"]:
        return (
            "almost all in the first epoch",
            "Only the first epoch is slow: read the files once before training, and compare speeds of later epochs.",
        )
    return (
        "in later epochs too",
        "The files do not stay in memory: copy them to a faster disk, store them smaller, or give the job more memory.",
    )
