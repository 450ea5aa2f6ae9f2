"""What of a run could not be recorded for want of room, in words, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.drops import UNCOUNTED
from sonde.diagnosis.wording import several

if TYPE_CHECKING:
    from sonde.analysis.drops import Drops

# Reasons that are none of the program's.
REASONS = {
    "space": "which could not be written: the disk was full, a limit of the size of files was reached, or a file was closed",
    "cap": "which were not taken: the run neared its size cap",
    "ring": "for which no memory could be mapped in the run folder: on a full disk, or under a limit of the size of files",
}
REMEDY = "Make room for the recording (disk, ulimit -f, the setting cap), or give it another folder with --dir."
QUERY = "SELECT sum(drops)::BIGINT FROM processes"  # all that was lost


def without_room(lost: Drops) -> dict[str, int]:
    """The records for which there was no room, by reason."""
    return {reason: count for reason, count in lost.by_reason.items() if reason in REASONS}


def told(lost: Drops) -> str:
    """What is missing of the run, in sentences: nobody need look for the fault in the program then."""
    found = [
        f"{several(count, 'record')} {'was' if count == 1 else 'were'} lost, {REASONS[reason]}. "
        for reason, count in without_room(lost).items()
    ]
    return "".join([*found, f"It is not known how many records {UNCOUNTED}. " if lost.uncounted else ""])
