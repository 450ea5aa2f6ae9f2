"""Disables a probe that failed: it is removed, and a mark in the run says which one and why."""

from __future__ import annotations

from collections.abc import Callable

from sonde.events import core
from sonde.guard import guard, reasons
from sonde.store.probe import OFF
from sonde.store.record import ESSENTIAL


def switch_off(name: str, doing: str) -> None:
    """Write that the probe `name` is off; `doing` is the place at which the guard caught its failure."""
    with guard("recording that a probe is off"):
        core.mark(name, OFF, key=0, args={"reason": reasons().get(doing, "unknown")}, level=ESSENTIAL)


def probe_guard(name: str, doing: str, leave: Callable[[], None]) -> guard[None]:
    """The guard of a probe: a failure takes the probe away, and a mark in the run says so."""

    def give_up() -> None:
        leave()
        switch_off(name, doing)

    return guard(doing, then=give_up)
