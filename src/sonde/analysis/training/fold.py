"""Adds up the time of each phase in each step, each moment in one phase only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.records.schema import PHASES
from sonde.analysis.training.intervals import (
    CHECKPOINT,
    EVALUATION,
    FORWARD,
    INPUT_WAIT,
    ITER,
    NONE,
    OPTIMIZER,
    Intervals,
    Spans,
    is_flat,
    nest,
    self_times,
)
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

TRAINING, EVALUATING, EITHER, APART = range(4)  # the last one: evaluation, but what lies around it is not


class Folded(NamedTuple):
    """Some steps: each row is the time from `start` to `end`, NONE if not known.

    `spent`, `calls` and `first` have a column for each phase: ns, spans, and the start of the first one. A phase with
    neither calls nor time was not recorded in that step. An input wait without calls was inferred.
    """

    start: Ints
    end: Ints
    spent: Ints
    calls: Ints
    first: Ints


class Stretch:
    """Some steps of a timeline: spans by start, the row of each, and what each is for (None: nothing is evaluation)."""

    def __init__(self, spans: Spans, rows: Ints, sides: NDArray[np.uint8] | None) -> None:
        self._code, self._start = spans.code, spans.start
        self._nested = not is_flat(spans.start, spans.end)
        if self._nested:
            outer, self._end = nest(spans.start, spans.end)
            self._self = self_times(outer, self._end - self._start)
            self._roots = np.flatnonzero(outer < 0)
            self._root = np.cumsum(outer < 0) - 1  # the place in `_roots` of the outermost span around each
            self._row = rows[self._roots]  # of each outermost span
        else:
            self._end = np.maximum(spans.end, spans.start)
            self._self = self._end - self._start
            self._roots = self._root = np.arange(len(rows))
            self._row = rows
        sides = None if sides is None else sides[self._roots]
        self._evaluating = self._evaluations(sides)
        self._together = self._evaluating if sides is None else self._evaluating & (sides != APART)
        self._evaluates = bool(self._evaluating.any())
        self._pause = self._pauses()

    def fold(self, starts: Ints, ends: Ints) -> Folded:
        """The rows, which have these starts and ends."""
        shape = (len(PHASES), len(starts))
        spent, calls = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        first = np.full(shape, NONE)
        rows = self._row[self._root] if self._nested else self._row
        phases = self._phases()
        for phase in range(len(PHASES)):
            places = np.flatnonzero(phases == phase)
            if len(places):
                self._fold_phase(rows[places], places, spent[phase], calls[phase], first[phase])
        if self._evaluates:
            spent[EVALUATION] += np.bincount(self._row, self._pause, len(starts)).astype(np.int64)
        return Folded(starts, ends, spent.T, calls.T, first.T)

    def _fold_phase(self, rows: Ints, places: Ints, spent: Ints, calls: Ints, first: Ints) -> None:
        """Add up the spans at some places, which lie in these rows."""
        if np.all(rows[1:] > rows[:-1]):  # one in each step, as it mostly is
            spent[rows] = self._self[places]
            calls[rows] = 1
            first[rows] = self._start[places]
            return
        spent[:] = np.bincount(rows, self._self[places], len(spent))
        calls[:] = np.bincount(rows, minlength=len(spent))
        first[rows[::-1]] = self._start[places[::-1]]  # of several the first one stays

    def infer_waits(self, folded: Folded, least: int, named: Intervals) -> None:
        """Where no loader is waited for: the time from the start of a step to its first forward that no phase has, and no name."""
        busy = np.append(0, np.cumsum(self._end[self._roots] - self._start[self._roots] + self._pause))
        code = self._code[self._roots]
        works = np.flatnonzero(~self._evaluating & (code >= FORWARD) & (code <= OPTIMIZER))
        rows, first = np.unique(self._row[works], return_index=True)
        wanted = (rows >= least) & (folded.calls[rows, INPUT_WAIT] == 0) & (folded.start[rows] != NONE)
        wanted &= code[works[first]] != OPTIMIZER  # the rest of such a step was not seen
        rows, at = rows[wanted], works[first[wanted]]
        opened = np.searchsorted(self._row, rows)  # the first outermost span of the step
        begun = self._start[self._roots[at]]
        idle = begun - folded.start[rows] - (busy[at] - busy[opened])
        idle -= named.before(begun) - named.before(folded.start[rows])
        folded.spent[rows, INPUT_WAIT] = np.maximum(idle, 0)
        folded.first[rows, INPUT_WAIT] = folded.start[rows]

    def _evaluations(self, side: NDArray[np.uint8] | None) -> Flags:
        """For each outermost span: is it part of a stretch of evaluation?"""
        if side is None or not np.any((side == EVALUATING) | (side == APART)):
            return np.zeros(len(self._row), bool)
        places = np.arange(len(side))
        decided = side != EITHER
        before = np.maximum.accumulate(np.where(decided, places, -1))
        after = np.minimum.accumulate(np.where(decided, places, len(side))[::-1])[::-1]
        known = np.append(side == EVALUATING, False)  # the last one stands for none
        row = np.append(self._row, -1)
        between = known[before] & known[after] & (row[before] == self._row) & (row[after] == self._row)
        found: Flags = np.where(decided, (side == EVALUATING) | (side == APART), between)
        return found

    def _pauses(self) -> Ints:
        """After each outermost span, the time until the next one if both are in one stretch of evaluation."""
        pause = np.zeros(len(self._row), np.int64)
        if not self._evaluates:
            return pause
        both = self._together[:-1] & self._together[1:] & (self._row[:-1] == self._row[1:])
        places = np.flatnonzero(both)
        pause[places] = self._start[self._roots[places + 1]] - self._end[self._roots[places]]
        return pause

    def _phases(self) -> NDArray[np.uint8]:
        """The phase that each span counts for."""
        code = self._code.copy()
        code[code == ITER] = INPUT_WAIT
        if self._evaluates:
            code[self._evaluating[self._root] & (code != CHECKPOINT)] = EVALUATION
        return code


def fold_alike(spans: Spans, codes: list[int], starts: Ints, ends: Ints) -> Folded:
    """Rows that have spans of these codes, in this order, none inside another."""
    shape = (len(PHASES), len(starts))
    spent, calls, first = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, NONE)
    for at, phase in enumerate(codes):
        own = slice(at, None, len(codes))
        first[phase] = spans.start[own]
        np.subtract(np.maximum(spans.end[own], first[phase]), first[phase], out=spent[phase])
        calls[phase] = 1
    return Folded(starts, ends, spent.T, calls.T, first.T)
