"""MEMORY_CREEP: the memory of a process keeps growing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import correlation, finding
from sonde.diagnosis.health import Health, Trend
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


SETTLED = 2  # by the third tenth of its time a program has loaded what it needs


def memory_creep(facts: Facts, policy: Policy) -> Finding | None:
    """The memory of a process keeps growing long after start-up."""
    if not facts.speed.trained:  # nothing shows when everything had been loaded
        return None
    grown = [trend for trend in facts.health.memory if _grows(trend, policy)]
    if not grown:
        return None
    worst = max(grown, key=_growth)
    rate = _growth(worst) / (worst.seconds * (1 - (SETTLED + 0.5) / 10))
    return finding(
        "MEMORY_CREEP",
        WARN,
        0.85,
        f"The {'device memory' if worst.what != 'rss' else 'memory'} of {_who(worst)} grew from "
        f"{units.size(worst.first.value)} to {units.size(worst.last.value)} (peak {units.size(worst.most.value)}), {units.size(rate)} per "
        f"second.{_until(facts.health, worst, rate)}",
        "Find what stays referenced: losses with their graph (use .item() or .detach()), lists of outputs, dataset "
        "caches.",
        figures={"memory then": worst.first, "memory at the end": worst.last, "most": worst.most},
        processes=[_who(trend) for trend in sorted(grown, key=_growth, reverse=True)],
        ranks=sorted({trend.rank for trend in grown if trend.rank is not None}),
    )


def _growth(trend: Trend) -> float:
    return trend.last.or_zero() - trend.first.or_zero()


def _grows(trend: Trend, policy: Policy) -> bool:
    course = trend.parts[SETTLED:]
    middle = course[len(course) // 2]
    return (
        _growth(trend) >= 1e6 * policy["memory_creep.least_mb" if _long(trend, policy) else "memory_creep.short_mb"]
        and _growth(trend) >= trend.first.or_zero() * policy["memory_creep.least_share"]
        and correlation(course) >= policy["memory_creep.order"]
        and course[-1] - middle >= 0.15 * _growth(trend)  # it has not come to an end
    )


def _long(trend: Trend, policy: Policy) -> bool:
    return trend.seconds >= policy["memory_creep.least_s"]


def _who(trend: Trend) -> str:
    of = "" if trend.rank is None else f" of rank {trend.rank}"
    if trend.worker is not None:
        return f"loader worker {trend.worker}{of}"
    return f"process {trend.pid}" if trend.rank is None else f"rank {trend.rank}"


def _until(health: Health, trend: Trend, rate: float) -> str:
    host = next((one for one in health.hosts if one.host == trend.host), None)
    if host is None or trend.what != "rss" or rate <= 0:
        return ""
    limit, used = host.figures["limit"].value, host.figures["used_last"].value
    if limit is None or used is None:
        limit, used = host.figures["ram_total"].value, host.figures["ram_last"].value
    if limit is None or used is None or limit <= used:
        return ""
    return f" At this rate memory runs out in {units.duration((limit - used) / rate * 1e9)}."
