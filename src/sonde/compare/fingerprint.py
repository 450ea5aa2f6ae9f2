"""Where the fingerprints of two runs diverge: the first step, layer and direction, and by how much."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.compare.divergence import FINGERPRINT, Divergence, Stream
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sonde.analysis.run import Run

CLOSE = 1e-6  # of sums, where one run has digests and the other sums of a device


class Print(NamedTuple):
    """One fingerprint. `nth`: of several calls of the layer in a step."""

    rank: int
    step: int
    direction: str
    name: str
    nth: int
    digest: int
    value: float

    @property
    def place(self) -> tuple[int, int, str, str, int]:
        """What it is of."""
        return self[:5]


_QUERY = f"""
    SELECT coalesce(rank, 0), step, cat[{len(probe.FINGERPRINT) + 1}:], name,
           row_number() OVER (PARTITION BY process, step, cat, name ORDER BY seq), key, value
    FROM events WHERE kind = 'counter' AND starts_with(cat, '{probe.FINGERPRINT}') AND step IS NOT NULL
    ORDER BY step, coalesce(rank, 0), seq
"""


def compare_fingerprints(a: Run, b: Run) -> Stream | None:
    """Compare them in the order of A; None if one of the runs has none."""
    if not all(has_fingerprints(run) for run in (a, b)):
        return None
    return compare_prints(read_fingerprints(a), read_fingerprints(b))


def compare_prints(mine: Iterable[Print], others: Iterable[Print]) -> Stream:
    """Compare those that are of the same step, rank and place, in the order of the first."""
    theirs = {one.place: one for one in others}
    compared, first, parted = set(), None, None
    for one in mine:
        other = theirs.get(one.place)
        if other is None:
            continue
        compared.add((one.rank, one.step))
        first = one.step if first is None else first
        if parted is None and differ(one, other):
            parted = _difference(one, other)
    return Stream(FINGERPRINT, len(compared), first, parted)


def has_fingerprints(run: Run) -> bool:
    """Whether it was recorded with --fingerprint, and a step was due."""
    counts = run.database.source.name_counts.values()
    return any(one.cat.startswith(probe.FINGERPRINT) for named in counts for one in named)


def read_fingerprints(run: Run) -> Iterator[Print]:
    """All of them, by step, rank and order."""
    rows: list[tuple[Any, ...]] = run.sql(_QUERY).fetchall()
    return map(Print._make, rows)


def differ(one: Print, other: Print) -> bool:
    """Are they of other numbers?"""
    if (
        one.digest ^ other.digest
    ) & probe.FINGERPRINT_DEVICE:  # one of them is of a device: digests are of another kind
        return not math.isclose(one.value, other.value, rel_tol=CLOSE)
    return one.digest != other.digest


def _difference(one: Print, other: Print) -> Divergence:
    gap = abs(other.value - one.value)
    known = gap if math.isfinite(gap) else None
    return Divergence(one.step, FINGERPRINT, one.rank, one.value, other.value, known, one.name, one.direction)
