"""Finds the parent, the depth and the step of each record of one thread, in its file and in bounded memory.

What lies inside of another span is its child, in whatever order the records were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

from sonde.lazy import numpy as np
from sonde.store import record

WINDOW = 400_000  # records at a time
SAMPLED = 1024  # of how many records one is a sample
_FOREVER = 2**63 - 1


class Extent(NamedTuple):
    """Records of one thread that lie side by side in the file, with block heads among them."""

    slot: int
    slots: int
    sample: Any  # starts: of every so many records, and the last one
    low: int
    high: int


class StepRange(NamedTuple):
    """When a step was, in ns."""

    start: int
    end: int
    step: int


class _Spans(NamedTuple):
    """Spans in the order of their starts, outer ones first."""

    start: Any
    end: Any
    seq: Any


def extent_of(slot: int, slots: int, start: Any) -> Extent:
    """What is kept in memory of records with these starts."""
    return Extent(slot, slots, start[::SAMPLED].copy(), int(start.min()), int(start.max()))


def fill(path: Path, extents: Sequence[Extent], steps: Sequence[StepRange]) -> None:
    """Write parents, depths and steps into the file."""
    ranges = np.array(sorted(steps), dtype=np.int64).reshape(-1, 3)
    above = _Spans(*np.empty((3, 0), np.int64))  # what is still open where a window begins
    with open(path, "r+b", buffering=0) as file:
        for low, high in _windows(extents):
            pieces = list(_pieces(file, extents, low, high))
            start = np.concatenate([one["start"][places] for _, one, places in pieces]).astype(np.int64)
            dur = np.concatenate([_durations(one[places]) for _, one, places in pieces])
            seq = np.concatenate([one["seq"][places] for _, one, places in pieces]).astype(np.int64)
            parents, depths, above = _place(_Spans(start, start + dur, seq), above, high)
            found = _steps(start, ranges)
            at = 0
            for slot, one, places in pieces:
                until = at + len(places)
                one["parent"][places], one["depth"][places] = parents[at:until], depths[at:until]
                unknown = (one["step"][places] == record.NO_STEP) & (found[at:until] != record.NO_STEP)
                one["step"][places[unknown]] = found[at:until][unknown]
                file.seek(slot * record.RECORD_SIZE)
                file.write(one.tobytes())
                at = until


def read(file: IO[bytes], extent: Extent) -> Any:
    """The records of an extent, and the block heads among them."""
    file.seek(extent.slot * record.RECORD_SIZE)
    return np.frombuffer(bytearray(file.read(extent.slots * record.RECORD_SIZE)), dtype=list(record.RECORD_FIELDS))


def _windows(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    """Stretches of time with about `WINDOW` records each."""
    parts = -(-sum(one.slots for one in extents) // WINDOW)
    starts = np.sort(np.concatenate([one.sample for one in extents]))
    cuts = sorted({int(starts[len(starts) * part // parts]) for part in range(1, parts)})
    return list(pairwise([0, *(cut for cut in cuts if cut), _FOREVER]))


def _pieces(file: IO[bytes], extents: Sequence[Extent], low: int, high: int) -> Iterator[tuple[int, Any, Any]]:
    """What lies in a window: the first slot, the records from there on, and the places of those that are meant."""
    for one in extents:
        if one.low < high and one.high >= low:
            records = read(file, one)
            start = records["start"]
            yield (
                one.slot,
                records,
                np.flatnonzero((start >= low) & (start < high) & (records["kind"] != record.BLOCK)),
            )


def _durations(records: Any) -> Any:
    return np.where((records["kind"] & record.KIND_MASK) == record.SPAN, records["dur"], 0)


def _place(rows: _Spans, above: _Spans, high: int) -> tuple[Any, Any, _Spans]:
    """Numbers of the parents and depths of the rows, and what is open at the end of the window."""
    order = np.lexsort((rows.seq, -rows.end, rows.start))
    spans = _Spans(*(np.concatenate((one, two[order])) for one, two in zip(above, rows, strict=True)))
    parent, depth = _nested(spans.start, spans.end) or _overlapping(spans.start, spans.end)
    before = len(above.seq)
    parents, depths = np.zeros(len(order), np.uint32), np.zeros(len(order), np.uint8)
    parents[order] = np.where(parent >= 0, spans.seq[parent], 0)[before:]
    depths[order] = np.minimum(depth, record.DEEPEST)[before:]
    still = (spans.end > high) & (spans.end > spans.start)
    return parents, depths, _Spans(*(one[still] for one in spans))


def _nested(start: Any, end: Any) -> tuple[Any, Any] | None:
    """The places of the parents (-1: none) and the depths of spans that all nest; None if some only overlap."""
    count, long = len(start), end > start
    depth = np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, side="right")
    if depth.min(initial=0) < 0:
        return None
    places = np.flatnonzero(long)
    levels = (depth * count + np.arange(count))[places]
    order = np.argsort(levels)
    found = np.searchsorted(levels[order], (depth - 1) * count + np.arange(count)) - 1
    parent = np.where(depth > 0, places[order[found]] if len(places) else -1, -1)
    inner = parent >= 0
    if np.any(end[parent[inner]] < end[inner]) or np.any(depth[parent[inner]] != depth[inner] - 1):
        return None
    return parent, depth


def _overlapping(start: Any, end: Any) -> tuple[Any, Any]:
    """The same for spans that may overlap: the parent is the innermost open one that ends later."""
    parent, depth = np.full(len(start), -1), np.zeros(len(start), np.int64)
    stack: list[tuple[int, int, int]] = []  # end, place and depth of what is open
    for place, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        deep = 0
        for above in reversed(stack):
            if above[0] >= until:
                parent[place], depth[place] = above[1], above[2] + 1
                deep = above[2] + 1
                break
        if until > begin:
            stack.append((until, place, deep))
    return parent, depth


def _steps(start: Any, ranges: Any) -> Any:
    """The step of each of these times."""
    found = np.full(len(start), record.NO_STEP, np.uint32)
    if len(ranges):
        row = np.searchsorted(ranges[:, 0], start, side="right") - 1
        inside = (row >= 0) & (start < ranges[row, 1])
        found[inside] = ranges[row[inside], 2]
    return found
