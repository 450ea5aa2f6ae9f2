"""SLOW_ITEMS: a few items of the dataset hold training up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.files import named
from sonde.diagnosis.loading import SlowItem
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def slow_items(facts: Facts, policy: Policy) -> Finding | None:
    """A few items take many times longer to load than the others, and training waits for them."""
    items, whole = facts.loading.items, facts.speed.whole["whole"].or_zero()
    slow, count, total = (items[name].or_zero() for name in ("slow", "count", "total"))
    if not slow or not count or not total or not whole:
        return None
    waited = facts.speed.whole["input_wait"].or_zero() / whole
    lost = items["lost"].or_zero() / total
    few = slow / count <= policy["slow_items.most_share"]
    # What they cost a rank: never more than it waits, and not more than they take too long.
    each = items["lost"].or_zero() / max(1, len(facts.speed.ranks))
    cost = min(waited, each / whole)
    if not few or lost < policy["slow_items.lost_share"] or cost < policy["slow_items.wait_share"]:
        return None
    if each < 1e9 * policy["slow_items.least_s"] or _chance(facts, policy):
        return None
    usual = items["p50"].or_zero()
    slowest = [f"{_name(item)} ({units.duration(item.median_ns)}, {_loaded(item)})" for item in facts.loading.slow]
    shown = facts.speed.shown("input_wait")
    again = any(item.loads > 1 for item in facts.loading.slow)
    return finding(
        "SLOW_ITEMS",
        CRITICAL if cost >= policy["slow_items.critical_share"] else WARN,
        0.9 if again else 0.7,
        f"{units.plural(items['different'].or_zero(), 'item takes', 'items take')} over {units.duration(facts.loading.slow_ns)} to load "
        f"{'each time ' if again else ''}(median {units.duration(usual)}). Slowest: {units.listed(slowest)}. They take {units.share(lost)} of all loading time; "
        f"training waits for data {units.share(shown.value)} of the step time.{_file(facts)}",
        f"Check {_name(facts.loading.slow[0])} in the dataset: its size, format and storage."
        if again
        else f"Load {_name(facts.loading.slow[0])} again. If it is slow each time, check its size, format and storage.",
        score=cost,
        figures={
            "loads of slow items": items["slow"],
            "loads": items["count"],
            "different slow items": items["different"],
            "median item ns": items["p50"],
            "median slow item ns": items["slow_p50"],
            "all loading ns": items["total"],
            "excess in slow items ns": items["lost"],
            "waiting for data ns": facts.speed.whole["input_wait"],
            "total time ns": facts.speed.whole["whole"],
            "share of the step time": shown,
        },
        items=[_plain(item) for item in facts.loading.slow],
    )


def _chance(facts: Facts, policy: Policy) -> bool:
    """On a host whose cores others use, any item may lose its core for a while; one that is slow each time has not."""
    first = facts.loading.slow[0]
    return first.loads < 2 and facts.health.crowded(policy) and first.median_ns < 1e6 * policy["slow_items.crowded_ms"]


def _file(facts: Facts) -> str:
    """What the slowest item reads, where files were watched."""
    first = facts.loading.slow[0]
    if first.file is None:
        return ""
    return f" {_name(first).capitalize()} reads {named(first.file, first.bytes, facts.files.items['bytes'].value)}."


def _loaded(item: SlowItem) -> str:
    return "loaded once" if item.loads == 1 else f"loaded {item.loads} times"


def _name(item: SlowItem) -> str:
    return f"item {item.index}" if item.index is not None else f"item {item.id!r}"


def _plain(item: SlowItem) -> dict[str, object]:
    return {
        "index": item.index,
        "id": item.id,
        "workers": item.workers,
        "rank": item.rank,
        "loads": item.loads,
        "median_ns": item.median_ns,
        "most_ns": item.most_ns,
        "file": item.file,
        "bytes": item.bytes,
        "query": item.query,
    }
