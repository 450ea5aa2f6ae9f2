"""Texts about the hosts of a run and the attempts of its job, the same on card and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units

if TYPE_CHECKING:
    from sonde.analysis.questions.goodput import Attempt, Goodput
    from sonde.analysis.questions.hosts import HostClock

CLOCKS = "clocks, compared with that of the host of rank 0"
CLOCKS_OF_PAGE = "Compared with the host of rank 0. Times in tables are those of each host; exports are corrected."


def has_clocks(hosts: list[HostClock]) -> bool:
    """Whether there are clocks to compare, or one that was set."""
    return len(hosts) > 1 or any(one.jumps for one in hosts)


def notable(hosts: list[HostClock], most: int) -> list[HostClock]:
    """All of a few; of many those that were set, are unknown or farthest off, in their order."""
    if len(hosts) <= most:
        return hosts
    order = sorted(hosts, key=lambda one: (not one.jumps, one.offset_ns is not None, -abs(one.offset_ns or 0)))
    return [one for one in hosts if one in order[:most]]


def ahead(one: HostClock) -> str:
    """`+250 ms`; `0` if it is within the error."""
    if one.source == "reference":
        return "reference"
    if one.offset_ns is None:
        return "unknown"
    if abs(one.offset_ns) <= (one.error_ns or 0):
        return "0"
    return f"{'-' if one.offset_ns < 0 else '+'}{units.duration(abs(one.offset_ns))}"


def error(one: HostClock) -> str:
    """`200 µs`; nothing of the reference."""
    return "" if one.error_ns is None or one.source == "reference" else units.duration(one.error_ns)


def drift(one: HostClock) -> str:
    """`+50 ppm`."""
    if one.drift_ppm is None or one.source == "reference":
        return ""
    return "<1 ppm" if abs(one.drift_ppm) < 1 else f"{one.drift_ppm:+.0f} ppm"


def basis(one: HostClock) -> str:
    """What the numbers are based on."""
    if one.source == "reference":
        return ""
    return "too few collectives" if one.collectives is None else units.plural(one.collectives, "collective")


def was_set(one: HostClock) -> str:
    """`by +1.00 s`."""
    if one.jumps is None:
        return "unknown"
    if not one.jumps or one.jump_ns is None:
        return ""
    by = f"by {'-' if one.jump_ns < 0 else '+'}{units.duration(abs(one.jump_ns))}"
    return by if one.jumps == 1 else f"{one.jumps} times, {by}"


def goodput_line(found: Goodput) -> str:
    """What all attempts achieved, in a line."""
    between = f"{units.duration(found.between_ns)} between attempts"
    if found.share is None or found.steps is None or found.repeated is None:
        return f"goodput unknown, {between}; each attempt counts its steps from the beginning"
    again = f"{units.plural(found.repeated, 'step')} repeated ({units.duration(found.repeated_ns)})"
    return f"goodput {units.share(found.share)}: {units.plural(found.steps, 'step')} counted, {again}, {between}"


def goodput_advice(found: Goodput) -> str | None:
    """What to do if it is not known."""
    if found.share is not None:
        return None
    return "Give the step to sonde.trace_step(step=...), to distinguish repeated steps from new ones."


def steps_of(one: Attempt) -> str:
    """`0 to 64`."""
    return units.MISSING if one.first_step is None else f"{one.first_step:,} to {one.last_step:,}"


def steps_done(found: Goodput | None) -> int | None:
    """The steps that counted, of all attempts; None: not known, or there is only one attempt."""
    return None if found is None else found.steps
