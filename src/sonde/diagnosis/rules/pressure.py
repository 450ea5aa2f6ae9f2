"""MEMORY_PRESSURE: the memory of a host is nearly used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import finding
from sonde.diagnosis.figures import Figure
from sonde.diagnosis.health import Host
from sonde.finding import CRITICAL, WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def memory_pressure(facts: Facts, policy: Policy) -> Finding | None:
    """Nearly all memory of a host, or of the cgroup of this run, is in use."""
    worst = max((found for host in facts.health.hosts if (found := _fullest(host))), default=None, key=_share)
    if worst is None or _share(worst) < policy["memory_pressure.warn_share"]:
        return None
    host, used, limit, what = worst
    own = host.rss.or_zero() >= policy["memory_pressure.own_share"] * limit.or_zero()
    critical = own and _share(worst) >= policy["memory_pressure.critical_share"]
    return finding(
        "MEMORY_PRESSURE",
        CRITICAL if critical else WARN,
        0.9 if own else 0.7,
        f"{units.share(_share(worst))} of the {what} of {host.host} is in use ({units.size(used.value)} of {units.size(limit.value)}); "
        f"this run has {units.size(host.rss.value)} of it.",
        "Use fewer loader workers, smaller batches or smaller caches before the kernel kills a process."
        if own
        else "Find out what else uses the memory of this host before the kernel kills a process.",
        figures={"used": used, "limit": limit, "this run": host.rss},
        hosts=[host.host],
    )


def _fullest(host: Host) -> tuple[Host, Figure, Figure, str] | None:
    """Of the host and its control group, the one with less room."""
    figures = host.figures
    found = []
    if figures["ram_total"].value and figures["ram_used"].value is not None:
        found.append((host, figures["ram_used"], figures["ram_total"], "memory"))
    limit = figures["limit"]
    if limit.value and figures["used"].value is not None:
        found.append((host, figures["used"], limit, "cgroup memory"))
    return max(found, default=None, key=_share)


def _share(found: tuple[Host, Figure, Figure, str]) -> float:
    return found[1].or_zero() / (found[2].value or 1.0)
