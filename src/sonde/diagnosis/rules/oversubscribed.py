"""CPU_OVERSUBSCRIBED: more threads compute than the host has cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.diagnosis.evidence import enough_steps, finding
from sonde.finding import WARN, Finding

if TYPE_CHECKING:
    from sonde.diagnosis.facts import Facts
    from sonde.diagnosis.policy import Policy


def cpu_oversubscribed(facts: Facts, policy: Policy) -> Finding | None:
    """The processes on a host compute with many more threads than it has cores, and the host is busy."""
    if not enough_steps(facts, policy):
        return None
    for host in facts.health.hosts:
        cores, load = host.figures["cores"], host.figures["cpu"]
        idle = load.value is not None and load.value < policy["cpu_oversubscribed.busy"]
        if not cores.value or idle or not host.most_threads.at_least(2):
            continue
        ratio = host.threads.or_zero() / cores.value
        if ratio >= policy["cpu_oversubscribed.ratio"]:
            return finding(
                "CPU_OVERSUBSCRIBED",
                WARN,
                0.85 if load.value is not None else 0.6,
                f"torch computes with {units.plural(host.threads.or_zero(), 'thread')} on {units.plural(cores.value, 'core')} "
                f"of {host.host}, {units.times(ratio)} as many: they compete for cores.",
                f"Call torch.set_num_threads({max(1, int(cores.value // _processes(host.threads.or_zero(), host.most_threads.or_zero())))}) "
                "in each process, or set OMP_NUM_THREADS to it.",
                figures={
                    "threads": host.threads,
                    "threads of one process": host.most_threads,
                    "cores": cores,
                    "load of the host %": load,
                },
                hosts=[host.host],
            )
    return None


def _processes(threads: float, most: float) -> float:
    return max(1.0, round(threads / most))
