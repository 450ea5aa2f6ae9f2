"""Records lost for lack of space, in words, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import units
from sonde.analysis.drops import UNCOUNTED

if TYPE_CHECKING:
    from sonde.analysis.drops import Drops

# Reasons that are none of the program's.
REASONS = {
    "space": "the disk was full, a file size limit was reached, or a file was closed",
    "cap": "the run was close to its size cap",
    "ring": "no memory could be mapped in the run folder (full disk or file size limit)",
}
REMEDY = "Free disk space, raise the limit (ulimit -f, the setting `cap`), or record to another folder with --dir."
QUERY = "SELECT sum(drops)::BIGINT FROM processes"  # all that was lost


def drops_for_space(lost: Drops) -> dict[str, int]:
    """The records for which there was no room, by reason."""
    return {reason: count for reason, count in lost.by_reason.items() if reason in REASONS}


def lost_for_space(lost: Drops) -> str:
    """What is missing of the run, in sentences: nobody need look for the fault in the program then."""
    found = [
        f"{units.plural(count, 'record')} {'was' if count == 1 else 'were'} lost: {REASONS[reason]}. "
        for reason, count in drops_for_space(lost).items()
    ]
    return "".join([*found, f"An unknown number of records {UNCOUNTED}. " if lost.uncounted else ""])
