"""Finds the processes that trained, and extracts the events that make up their steps.

A process that the probes saw is read from their records. A phase that they did not see there is taken from the vocabulary
(`compute.forward`, `comm.*`, ...), and without any update, steps are known by the numbers that the program gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records.schema import PHASES
from sonde.analysis.training.breakdown import Timeline, Updates
from sonde.analysis.training.intervals import INPUT_WAIT, ITER, NAMED, NONE, Spans
from sonde.analysis.training.reader import Trail, Wanted
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from sonde.analysis.records.names import NameCount
    from sonde.analysis.training.reader import Columns
    from sonde.analysis.training.source import RecordSource

    Ints = NDArray[np.int64]
    Row = dict[str, Any]

WORKER = "worker"
_VOCABULARY = {
    ("compute", "forward"): "forward",
    ("compute", "backward"): "backward",
    ("compute", "step"): "optimizer",
    ("dataloader", "fetch"): "input_wait",
    ("pipeline", "evaluate"): "evaluation",
    ("pipeline", "test"): "evaluation",
}
_WAIT, _USE = ".iter", ".block"  # what `ai.dataloader.fetch.iter(loader)` writes of each item
_CATEGORIES = {"data": "input_wait", "comm": "communication", "checkpoint": "checkpoint", "device": "h2d"}
_LOOKED_AT = (probe.PROBE, probe.LOG, "compute", "dataloader", "pipeline", *_CATEGORIES)
_WAITS = (probe.INPUT_WAIT, probe.PREFETCH)
_WORK = tuple(PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))


class Trainer(NamedTuple):
    """A process that trained. `number` is its place among the processes."""

    number: int
    row: Row
    timeline: Timeline
    names: set[str]  # of the probes' records that it has
    aside: Columns  # this and the others as in a Trail
    garbage: Columns
    counters: dict[str, Columns]


def trainers(source: RecordSource, rows: Sequence[Row], but: Collection[str] = ()) -> Iterator[Trainer]:
    """One after the other, `but` some, each read when its turn comes, into the memory of the one before it."""
    for number, row in enumerate(rows):
        if row["process"] in but:
            continue
        named = [
            one
            for one in source.name_counts[row["process"]]
            if not one.open and (one.cat in _LOOKED_AT or one.kind == "span")
        ]
        lanes = _threads(named)
        if not lanes or row["role"] == WORKER:
            continue
        codes = codes_of(named)
        names = {one.name for one in named if one.cat == probe.PROBE}
        aside = any(one.name in _WAITS and one.cat == probe.PROBE and one.lane not in lanes for one in named)
        logged = probe.LOSS not in names and any(
            (one.kind, one.cat, one.name) == ("counter", probe.LOG, probe.LOSS) for one in named
        )
        counted = {*names, probe.LOSS} if logged else names
        wanted = Wanted(codes, lanes, counted, not _updating(named), aside, logged)
        # Read at the call, and kept nowhere here: they are large.
        yield _trainer(number, row, names, source.read(row["process"], wanted), counting=_counting(named))
    source.forget()


def _trainer(number: int, row: Row, names: set[str], trail: Trail, *, counting: bool) -> Trainer:
    return Trainer(number, row, _timeline(trail, counting=counting), names, trail.aside, trail.garbage, trail.counters)


def _timeline(trail: Trail, *, counting: bool) -> Timeline:
    found = trail.spans
    spans = Spans(found["code"], found["start_ns"], found["end_ns"], found["key"])
    if not len(trail.updates["start_ns"]):
        return Timeline(spans, updates_from_steps(spans, found["step"], counting=counting))
    updates, lane_of = _updates(trail.updates)
    if "lane" in found:
        spans = in_turn(spans, found["lane"], updates.time, lane_of)
    return Timeline(spans, updates)


def _updates(found: Columns) -> tuple[Updates, Ints]:
    """In the order of time."""
    time = found["start_ns"]
    if not np.all(time[1:] > time[:-1]):
        order = np.argsort(time, kind="stable")
        found = {name: column[order] for name, column in found.items()}
    bits, none = found["key"], found["key"] == NONE
    if none.any():
        bits = np.where(none, 0, bits)
    return Updates(found["start_ns"], found["step"], found["epoch"], bits), found["lane"]


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def phase_of(cat: str, name: str) -> tuple[int, bool] | None:
    """The phase of spans of this name, and whether the probes wrote them."""
    if cat == probe.PROBE:
        if name in (probe.ITER, probe.ITER_END):
            return ITER, True
        if name == probe.PREFETCH:  # a wait in the thread that trains, whatever its name
            return INPUT_WAIT, True
        phase = "communication" if name.startswith(probe.COMMUNICATION) else name
        return (PHASES.index(phase), True) if phase in PHASES else None
    if name.endswith(_USE):
        return None
    known = _VOCABULARY.get((cat, name.removesuffix(_WAIT))) or _CATEGORIES.get(cat)
    if known:
        return PHASES.index(known), False
    return None if cat.startswith(probe.LAYER) else (NAMED, False)  # the program's own names


def codes_of(named: Sequence[NameCount]) -> dict[tuple[str, str], int]:
    """For each name that counts in this process its phase. What the program named itself counts where waits are inferred."""
    spans = {(one.cat, one.name): phase_of(one.cat, one.name) for one in named if one.kind == "span"}
    seen = {found[0] for found in spans.values() if found and found[1]}
    if any(found and found[0] == INPUT_WAIT for found in spans.values()):
        seen.add(NAMED)
    return {name: found[0] for name, found in spans.items() if found and (found[1] or found[0] not in seen)}


def _counting(named: Sequence[NameCount]) -> bool:
    """Did the probes count the steps, as they do from the first phase on that they see?"""
    return any(one.kind == "span" and one.cat == probe.PROBE and phase_of(one.cat, one.name) for one in named)


def _updating(named: Sequence[NameCount]) -> set[int]:
    """The threads with updates."""
    return {one.lane for one in named if (one.kind, one.cat, one.name) == ("mark", probe.PROBE, probe.UPDATE)}


def _threads(named: Sequence[NameCount]) -> list[int]:
    """The threads that train: those with updates, or else the one with the most forwards, backwards and optimizer calls."""
    updating = _updating(named)
    if updating:
        return sorted(updating)
    codes = codes_of(named)
    weights: dict[int, int] = {}
    for one in named:
        code = codes.get((one.cat, one.name))
        if one.kind == "span" and code not in (None, NAMED):
            weights[one.lane] = weights.get(one.lane, 0) + one.count * (1000 if code in _WORK else 1)
    return [max(weights, key=lambda lane: (weights[lane], -lane))] if weights else []


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def updates_from_steps(spans: Spans, steps: Ints, *, counting: bool) -> Updates:
    """Steps of a program that counts them itself: each ends where the first span of the next one begins.

    Most programs say which step it is when they have its data: waits at the end of a step are for the next one. `counting`: the probes counted too. Their count is 0 until the first update: that alone is no step.
    """
    known = np.flatnonzero((steps >= 0) & (spans.code != NAMED))
    if counting and not steps[known].any():
        known = known[:0]
    order = known[np.argsort(spans.start[known], kind="stable")]
    number = steps[order].astype(np.int64)
    turns = np.flatnonzero(number[1:] != number[:-1])
    time = spans.start[order[_before_waits(spans.code[order], turns) + 1]]
    if len(order):
        time = np.append(time, spans.end[spans.code != NAMED].max())
    step = number[np.append(turns, len(number) - 1)] if len(order) else number
    return Updates(time, step, np.full(len(step), NONE), np.zeros(len(step), np.int64))


def _before_waits(codes: NDArray[np.uint8], turns: Ints) -> Ints:
    """For the last span of each step, the last one of it that is no wait; if there is none, the last one."""
    working = np.flatnonzero((codes != INPUT_WAIT) & (codes != ITER))
    place = np.searchsorted(working, turns, side="right") - 1
    found = np.append(working, -1)[place]
    return np.where(found > np.append(-1, turns)[: len(turns)], found, turns)


def row_of(timeline: Timeline, times: Ints, steps: Ints) -> Ints:
    """The step that values belong to. One that was written later says which it is about."""
    known = np.append(timeline.updates.step, NONE)
    row = timeline.step_of(times)
    order = np.argsort(known[:-1], kind="stable")
    if not len(order):
        return row
    place = order[np.minimum(np.searchsorted(known[:-1], steps, side="right", sorter=order), len(order)) - 1]
    late = np.insert(timeline.updates.key & probe.UPDATE_LATE != 0, 0, False)
    elsewhere = (known[row] != steps) & (known[place] == steps) & ~late[row]
    return np.where(elsewhere, place, row)


def in_turn(spans: Spans, lanes: Ints, updates: Ints, lane_of: Ints) -> Spans:
    """Of several threads that trained, one after the other, only what the thread did whose turn it was."""
    turn = np.minimum(np.searchsorted(updates, spans.start), len(updates) - 1)
    return spans.take(np.flatnonzero(lanes == lane_of[turn]))
