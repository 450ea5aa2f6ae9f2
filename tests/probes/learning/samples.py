"""What a recording has of sampled steps."""

from __future__ import annotations

from typing import Any

from sonde.testing import Recorded


def counters(recorded: Recorded, cat: str, step: int | None = None) -> dict[tuple[str, str], float]:
    """(name, what was measured) -> value, of a step or of the last one that has it."""
    return {
        (event["name"], event["cat"].removeprefix(cat)): event["value"]
        for event in recorded.events
        if event["cat"].startswith(cat) and event["kind"] == "counter" and step in (None, event["step"])
    }


def steps(recorded: Recorded, cat: str) -> list[int]:
    """The steps that have such counters."""
    return sorted({event["step"] for event in recorded.events if event["cat"].startswith(cat)})


def facts(recorded: Recorded, cat: str) -> dict[str, Any]:
    """What was said last of each model or layer."""
    return {event["name"]: event["args"] for event in recorded.events if event["cat"] == cat}
