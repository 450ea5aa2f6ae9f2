"""SMALL_READS: items are read in many small pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def small_reads(facts: Facts, policy: Policy) -> Finding | None:
    """Items are read in many small pieces, and training waits for them. Needs `--io`."""
    reads, items = facts.files.reads, facts.files.items
    calls, size, loads, total = (
        reads["calls"].or_zero(),
        reads["bytes"].or_zero(),
        items["count"].or_zero(),
        items["total"].or_zero(),
    )
    whole = facts.speed.whole["whole"].or_zero()
    if not calls or not loads or not total or not whole:
        return None
    share = reads["total"].or_zero() / total
    cost = facts.speed.whole["input_wait"].or_zero() / whole * share
    if calls / loads < policy["small_reads.calls"] or size / calls > 1024 * policy["small_reads.most_kib"]:
        return None
    if share < policy["small_reads.read_share"] or cost < policy["small_reads.warn_share"]:
        return None
    return finding(
        "SMALL_READS",
        WARN,
        0.8,
        f"An item needs {calls / loads:,.0f} read calls of {units.size(size / calls)} each. Reading is {units.share(share)} of all loading time.",
        "Read more at once: larger chunks, one read for each item, or a buffered file.",
        score=cost,
        figures={
            "read calls": reads["calls"],
            "bytes read": reads["bytes"],
            "reading ns": reads["total"],
            "loads": items["count"],
            "all loading ns": items["total"],
            "waiting for data ns": facts.speed.whole["input_wait"],
        },
    )
