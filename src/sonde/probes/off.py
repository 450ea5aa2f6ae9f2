"""The end of a probe that failed: it is taken away, and a mark in the run says which and why."""

from __future__ import annotations

from sonde import guard
from sonde.events import core
from sonde.store.probe import OFF
from sonde.store.record import ESSENTIAL


def switch_off(name: str, doing: str) -> None:
    """Write that the probe `name` is off; `doing` is the place at which the guard caught its failure."""
    with guard.guard("recording that a probe is off"):
        core.mark(name, OFF, key=0, args={"reason": guard.reasons().get(doing, "unknown")}, level=ESSENTIAL)
