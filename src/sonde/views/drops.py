"""The records that a run has lost, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sonde.analysis.drops import REASONS, UNCOUNTED

if TYPE_CHECKING:
    from sonde.analysis.run import Run


@dataclass(frozen=True)
class LostRecords:
    """Records that are missing, and why."""

    count: int | None  # None is not known
    reason: str


def lost_records(run: Run) -> list[LostRecords]:
    """All of them, a row for each reason."""
    found = run.drops
    lost = [LostRecords(count, REASONS[reason]) for reason, count in found.by_reason.items()]
    lost += [LostRecords(None, UNCOUNTED)] if found.uncounted else []
    return lost + ([LostRecords(found.args, "without their arguments")] if found.args else [])
