"""Draws the clocks of hosts and the attempts of a job in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.terminal.table import TextColumn
from sonde.views import hosts as words

if TYPE_CHECKING:
    from sonde.analysis.questions.goodput import Goodput
    from sonde.analysis.questions.hosts import HostClock

MOST = 8


def clock_columns(hosts: list[HostClock]) -> list[TextColumn]:
    """A row for each host, or for the most notable of many."""
    shown = words.notable(hosts, MOST)
    columns = [
        TextColumn("", [one.host for one in shown], right=False, least=8),
        TextColumn("ranks", [units.count(one.ranks) for one in shown], need=3),
        TextColumn("ahead", [words.ahead(one) for one in shown]),
        TextColumn("maximum error", [words.error(one) for one in shown]),
        TextColumn("drift", [words.drift(one) for one in shown], need=2),
        TextColumn("based on", [words.basis(one) for one in shown], need=4, right=False),
    ]
    if any(map(words.was_set, shown)):
        styles = ["yellow" if one.jumps else "dim" for one in shown]
        columns.append(
            TextColumn("clock was set", [words.was_set(one) for one in shown], need=1, right=False, styles=styles)
        )
    return columns


def attempt_columns(found: Goodput) -> list[TextColumn]:
    """A row for each attempt, or for the last of many."""
    shown = found.attempts[-MOST:]
    return [
        TextColumn("", [f"attempt {one.number}" for one in shown], right=False),
        TextColumn("ranks", [units.count(one.ranks) for one in shown], need=2),
        TextColumn("after", ["" if one.waited_ns is None else units.duration(one.waited_ns) for one in shown], need=3),
        TextColumn("ran", [units.duration(one.ran_ns) for one in shown]),
        TextColumn("steps", [words.steps_of(one) for one in shown]),
        TextColumn("repeated later", [units.count(one.repeated) for one in shown], need=1),
    ]
