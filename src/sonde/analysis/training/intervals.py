"""Spans and stretches of time as arrays: sorting, nesting, and which moment falls into which."""

from __future__ import annotations

from operator import le, lt
from typing import TYPE_CHECKING, Literal, NamedTuple

from sonde.analysis.records.schema import PHASES
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

INPUT_WAIT, H2D, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CHECKPOINT, EVALUATION = range(len(PHASES))
ITER = len(PHASES)  # the start of a loader, or its end: input wait, but no batch
NAMED = 20  # the code of spans of the program's own, which are no phase
NONE = -(2**63)  # stands for no value

BLOCK = 1 << 15  # moments that are looked at together: so few stay near the processor


class Spans(NamedTuple):
    """Completed spans of one thread, in the order in which they began. `code` is a phase or ITER; `key` is NONE where there is none."""

    code: NDArray[np.uint8]
    start: Ints
    end: Ints
    key: Ints

    def take(self, places: Ints | slice) -> Spans:
        """Those at some places, in that order."""
        return Spans(self.code[places], self.start[places], self.end[places], self.key[places])


class Intervals(NamedTuple):
    """Stretches of time that do not overlap, in their order."""

    start: Ints
    end: Ints

    def before(self, moments: Ints) -> Ints:
        """How much of them lies before each moment."""
        whole = np.append(0, np.cumsum(self.end - self.start))
        place = np.searchsorted(self.start, moments, side="right")
        ends = np.append(moments.min(initial=0), self.end)  # the first one is that of none
        found: Ints = whole[place] - np.maximum(ends[place] - moments, 0)
        return found


def later_ends(updates: Ints, ends: Ints, before: Ints) -> Ints:
    """Each update, or the end of the last span before it if that is later. `before`: so many begin before each."""
    found = updates.copy()
    for low in range(0, len(found), BLOCK):
        some, around = found[low : low + BLOCK], before[low : low + BLOCK] - 1
        np.maximum(some, ends[around], out=some, where=around >= 0)
    return found


def places_in(known: Ints, wanted: Ints, side: Literal["left", "right"]) -> Ints:
    """The same as np.searchsorted. Moments that come at even distances, as those of steps mostly do, are not searched for."""
    found = np.empty(len(wanted), np.int64)
    for low in range(0, len(wanted), BLOCK):
        some = wanted[low : low + BLOCK]
        first, last = np.searchsorted(known, some[[0, -1]], side).tolist()
        width, rest = divmod(last - first, max(len(some) - 1, 1))
        inside = 0 < first <= last < len(known)
        even = slice(first, last + 1, width) if inside and width and not rest else None
        if even is not None and _between(known[first - 1 : last : width], some, known[even], side):
            found[low : low + BLOCK] = np.arange(first, last + 1, width)
            continue
        places = first + np.arange(len(some)) * (last - first) // max(len(some) - 1, 1)
        if not (inside and _between(known[places - 1], some, known[places], side)):
            places = np.searchsorted(known, some, side)
        found[low : low + BLOCK] = places
    return found


def _between(before: Ints, wanted: Ints, after: Ints, side: Literal["left", "right"]) -> bool:
    """Whether np.searchsorted would find each of the wanted ones between these two."""
    if side == "left":
        return bool(((before < wanted) & (wanted <= after)).all())
    return bool(((before <= wanted) & (wanted < after)).all())


def is_flat(start: Ints, end: Ints) -> bool:
    """Whether each ends before the next one begins."""
    return _all_before(end, start, le)


def _all_before(some: Ints, others: Ints, before: Callable[[Ints, Ints], Flags]) -> bool:
    """Whether each comes before the next one of the others. Looked at in blocks: no memory is needed so."""
    last = len(some) - 1
    return all(
        before(some[low : min(low + BLOCK, last)], others[low + 1 : low + BLOCK + 1]).all()
        for low in range(0, last, BLOCK)
    )


def nest(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """For each span the innermost one around it (-1: none), and its end, which is never behind that of the outer one.

    They must be sorted by start, outer ones first.
    """
    outer = np.full(len(start), -1, np.int64)
    end = np.maximum(end, start)
    level = np.arange(len(start))
    while len(level):
        reach = np.maximum.accumulate(end[level])
        inside = np.append(False, start[level[1:]] < reach[:-1])
        around = level[np.maximum.accumulate(np.where(inside, 0, np.arange(len(level))))]
        inner = level[inside]
        outer[inner] = around[inside]
        end[inner] = np.maximum(np.minimum(end[inner], end[around[inside]]), start[inner])
        level = inner
    return outer, end


def self_times(outer: Ints, lasting: Ints) -> Ints:
    """The time of each span without that of the spans in it."""
    inner = np.flatnonzero(outer >= 0)
    if not len(inner):
        return lasting
    return lasting - np.bincount(outer[inner], lasting[inner], len(outer)).astype(np.int64)


def sort_spans(spans: Spans) -> Spans:
    if _all_before(spans.start, spans.start, lt):
        return spans
    order = np.lexsort((-spans.end, spans.start))
    return spans.take(order)
