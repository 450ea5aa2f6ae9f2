"""Which batch each call of `sonde.log_items` was about: pure functions over plain data of one process.

Mostly it is the newest batch. Loops that fetch ahead have got later ones already: there the calls of a step are about the batches that
the step used, in their order. A call whose number of values fits no batch is about none.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

EVALUATE = "evaluate"


class ItemCall(NamedTuple):
    """A call: what was logged, when, in which step, and how many values there were."""

    name: str
    time: int
    step: int | None
    values: int


class KnownBatch(NamedTuple):
    """A batch that the program got; `arrived`: when."""

    arrived: int
    step: int | None
    purpose: str
    size: int | None


def batches_of(calls: Sequence[ItemCall], batches: Sequence[KnownBatch]) -> list[int | None]:
    """For each call the place of its batch. Both are sorted by time."""
    arrived = [one.arrived for one in batches]
    trained: dict[int, list[int]] = {}
    for place, one in enumerate(batches):
        if one.step is not None and one.purpose != EVALUATE:
            trained.setdefault(one.step, []).append(place)
    newest = [bisect_right(arrived, call.time) - 1 for call in calls]
    within: dict[tuple[str, int | None], list[int]] = {}
    found: list[int | None] = [None] * len(calls)
    for number, (call, place) in enumerate(zip(calls, newest, strict=True)):
        if place < 0:
            continue
        batch = batches[place]
        if batch.purpose == EVALUATE or _late(call, batch):
            found[number] = place
        else:
            within.setdefault((call.name, call.step), []).append(number)
    for (_, step), numbers in within.items():
        of_step = [] if step is None else trained.get(step, [])
        in_order = len(of_step) == len(numbers)
        for number, place in zip(numbers, of_step if in_order else [newest[one] for one in numbers], strict=True):
            if in_order or not _ahead(calls[number], batches[place]):
                found[number] = place
    return [
        None if place is None or batches[place].size not in (None, call.values) else place
        for place, call in zip(found, calls, strict=True)
    ]


def _late(call: ItemCall, batch: KnownBatch) -> bool:
    """Was the call made after the step that used this batch had ended?"""
    return call.step is not None and batch.step is not None and batch.step < call.step


def _ahead(call: ItemCall, batch: KnownBatch) -> bool:
    """Is this batch for a later step?"""
    return call.step is not None and batch.step is not None and batch.step > call.step
