"""What was lost of a run: how many records, why, and where."""

from __future__ import annotations

from typing import NamedTuple

# Reason -> what it means. The first three are counted by the process that lost the records.
REASONS = {
    "space": "could not be written: disk full, file-size limit, or a file that was closed or truncated",
    "cap": "dropped: the run was close to its size cap",
    "ring": "dropped: their thread could not get a buffer",
    "damage": "damaged in the file",
    "unknown": "missing for an unknown reason, such as a killed process or a deleted file",
}
NO_FOLDER = "processes that could not create their folder"
UNCOUNTED = "were in files that are missing or damaged"


class Drops(NamedTuple):
    """Records that were begun and cannot be found, in total, by reason and by process; those with 0 are left out.

    `args` counts records that are there and whose arguments could not be written. `uncounted` are processes of which nobody
    knows how many records they began, because a file is missing or damaged: what they lost is in none of the numbers.
    """

    total: int
    by_reason: dict[str, int]
    by_process: dict[str, int]
    args: int = 0
    uncounted: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{count:,} {REASONS[reason]}" for reason, count in self.by_reason.items()]
        unknown = f"an unknown number of records {UNCOUNTED}"
        text = f"{self.total:,} records lost: {'; '.join(parts)}" if self.total else "no records lost"
        if self.uncounted:
            text = f"{text}; {unknown}" if self.total else unknown
        return f"{text}; the arguments of {self.args:,} records are lost" if self.args else text


class ProcessDrops(NamedTuple):
    """What one process lost: `missing` in total (None: not known), and what it said itself of the reasons."""

    process: str
    missing: int | None
    space: int = 0
    cap: int = 0
    ring: int = 0
    args: int = 0
    corrupt: int = 0


def drops_of(losses: list[ProcessDrops]) -> Drops:
    """Add up what each process lost."""
    reasons = dict.fromkeys(REASONS, 0)
    for one in losses:
        for reason, count in _reasons(one).items():
            reasons[reason] += count
    return Drops(
        total=sum(one.missing or 0 for one in losses),
        by_reason={reason: count for reason, count in reasons.items() if count},
        by_process={one.process: one.missing for one in losses if one.missing},
        args=sum(one.args for one in losses),
        uncounted=tuple(one.process for one in losses if one.missing is None),
    )


def _reasons(loss: ProcessDrops) -> dict[str, int]:
    """Share out what is missing: no counter can explain more than that."""
    left = loss.missing or 0
    shared: dict[str, int] = {}
    for reason, count in (("space", loss.space), ("cap", loss.cap), ("ring", loss.ring), ("damage", loss.corrupt)):
        shared[reason] = min(count, left)
        left -= shared[reason]
    return shared | {"unknown": left}
