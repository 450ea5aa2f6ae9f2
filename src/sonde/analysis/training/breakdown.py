"""Where the time of each step went: lays the phases of one process on its clock, each moment in one phase only.

Pure arithmetic on arrays, so that the tables of a finished run and a live view of its last steps give the same numbers.

- A step reaches from the end of the update before it to the end of its own.
- A span inside another one takes its time away from it: a forward that an optimizer calls is forward, and the rest of that
  call is optimizer. So phases never overlap, and what no phase has is the residual.
- Evaluation is a stretch: from the first fetch or forward for evaluation to the end of the last one without training in
  between. All of it, pauses included, is evaluation, but for checkpoints. A forward in training mode without gradients, of a model
  that learns, is evaluation by itself, unless a batch was fetched for it, or it is a part of each step.
- In a program that waits for no loader, the input wait of a step is what no phase has before its first forward, and what the
  program has not named itself. Not so without a torch optimizer: there the program's own update lies in that gap too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.training.fold import APART, EITHER, EVALUATING, TRAINING, Folded, Stretch, fold_alike
from sonde.analysis.training.intervals import (
    BACKWARD,
    BLOCK,
    EVALUATION,
    FORWARD,
    INPUT_WAIT,
    ITER,
    NAMED,
    NONE,
    OPTIMIZER,
    Intervals,
    Spans,
    is_flat,
    later_ends,
    places_in,
    sort_spans,
)
from sonde.analysis.training.purpose import EVALUATE, TRAIN, Purposes, all_trained, purposes_of
from sonde.analysis.training.windows import Forwards, Rounds, ThreadWaits
from sonde.lazy import numpy as np
from sonde.store.probe import FORWARD_GRAD, FORWARD_LEARNED, FORWARD_TRAINING, UPDATE_BACKWARD, iteration_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_MODES = FORWARD_TRAINING | FORWARD_GRAD
_HABIT = 0.5  # a forward without gradients in more than so many of the steps is a part of the step


class Updates(NamedTuple):
    """The updates of one process in the order of time; `step` and `epoch` are NONE if not known, `key` has the bits."""

    time: Ints
    step: Ints
    epoch: Ints
    key: Ints


class Timeline:
    """The phases of one thread, laid into the steps of its process. Row n of n updates is what came after all of them."""

    def __init__(self, spans: Spans, updates: Updates) -> None:
        self.updates = updates
        spans, self._named = _named_apart(spans, updates.time)
        self._spans = sort_spans(_without_whole_trainings(spans, updates.time))
        flat = is_flat(self._spans.start, self._spans.end)
        self.ends, cuts = _ends(self._spans, updates.time, flat=flat)  # of the steps: when, and before which span
        self._cuts = np.concatenate(([0], cuts, [len(self._spans.code)]))
        self._over = int(self._spans.end.max(initial=NONE))
        self._waits = _outermost_waits(self._spans, flat=flat)
        self.purposes = self._find_purposes()
        self._waited = bool(np.any(self.purposes.purpose == TRAIN))
        self._evaluated = bool(np.any(self.purposes.purpose == EVALUATE))
        self._habits = self._bare_is_habit()
        self._acts = self._acts_apart()
        self._manual = bool(np.any(updates.key & UPDATE_BACKWARD))

    def step_of(self, moments: Ints) -> Ints:
        """The row that each moment falls into."""
        return np.searchsorted(self.ends, moments, side="right")

    def optimizers(self) -> Spans:
        """The updates of optimizers, one after the other; not those inside a backward pass."""
        return self._spans.take(np.flatnonzero((self._spans.code == OPTIMIZER) & (self._spans.key != NONE)))

    def batches(self) -> tuple[ThreadWaits, Purposes, Ints]:
        """The fetches, what they were for, and the row of the step that used their batch."""
        waits = ThreadWaits(*(column[self._waits] for column in (self._spans.key, self._spans.start, self._spans.end)))
        return waits, self.purposes, self._used_in()

    def trained(self, *, parts: bool = True) -> tuple[Ints, Ints]:
        """The keys of the batches that were for training, and the row of the step that used each.

        Without `parts`: of several that were one micro-batch only the first.
        """
        keys, rows = self._spans.key[self._waits], self._used_in()
        trained = self.purposes.purpose == TRAIN
        if not parts:
            trained &= ~self.purposes.part
        if trained.all():
            return keys, rows
        places = np.flatnonzero(trained)
        return keys[places], rows[places]

    def _used_in(self) -> Ints:
        """For each fetch the row of the step that used its batch."""
        return places_in(self.ends, self.purposes.moment, "right")

    def count(self, code: int) -> Ints:
        """How many spans of a phase each row has."""
        rows = self._rows(0, len(self._cuts) - 1)[self._spans.code == code]
        return np.bincount(rows, minlength=len(self.ends) + 1)

    def fold(self, low: int, high: int) -> Folded:
        """The rows from `low` to before `high`."""
        starts, ends = self._bounds(low, high)
        first, last = int(self._cuts[low]), int(self._cuts[high])
        alike = self._alike(low, high)
        if alike is not None:
            return fold_alike(self._spans.take(slice(first, last)), alike, starts, ends)
        rows = self._rows(low, high)
        stretch = Stretch(self._spans.take(slice(first, last)), rows, self._sides(first, last, rows))
        folded = stretch.fold(starts, ends)
        if not self._waited and not self._manual:
            stretch.infer_waits(folded, 0 if low else 1, self._named)  # nobody knows when the first step began
        return folded

    def _alike(self, low: int, high: int) -> list[int] | None:
        """The codes of the spans of a row, if all rows have the same, each once, and nothing is to be judged; as it mostly is."""
        first, last = int(self._cuts[low]), int(self._cuts[high])
        width, rest = divmod(last - first, high - low)
        spans = self._spans.take(slice(first, last))
        codes = spans.code[:width].tolist()
        everything = not self._waited or self._evaluated or max(codes, default=ITER) >= EVALUATION
        if everything or rest or len({*codes}) < width:
            return None
        even = np.array_equal(self._cuts[low : high + 1], np.arange(first, last + 1, width))
        if not even or not all((spans.code[at::width] == code).all() for at, code in enumerate(codes)):
            return None
        bare = FORWARD in codes and _bare(spans.key[codes.index(FORWARD) :: width]).any()
        return codes if not bare and is_flat(spans.start, spans.end) else None

    def _rows(self, low: int, high: int) -> Ints:
        """For each span of some rows its row, counted from the first of them."""
        return np.repeat(np.arange(high - low), np.diff(self._cuts[low : high + 1]))

    def _bounds(self, low: int, high: int) -> tuple[Ints, Ints]:
        count = len(self.ends)
        begun = int(self._spans.start[0]) if len(self._spans.start) else NONE
        if count and begun > self.ends[0]:
            begun = NONE  # nothing was recorded of the first step but its end
        starts = self.ends[low - 1 : high - 1] if low else np.append(begun, self.ends[:high])[:high]
        ends = self.ends[low:high]
        if high > count:
            ends = np.append(ends, max(self._over, int(self.ends[-1])) if count else self._over)
        return starts, ends

    # ── training or evaluation ───────────────────────────────────────────────────────────────────────────────────────

    def _find_purposes(self) -> Purposes:
        marked = np.flatnonzero(self._spans.code == EVALUATION)
        if not len(marked):
            return self._match(self._spans, self._waits)
        # A fetch in what the program calls an evaluation is for that. Nothing in there is matched with anything.
        start = self._spans.start
        place = np.searchsorted(start[marked], start, side="right") - 1
        inside = (place >= 0) & (start < np.maximum.accumulate(self._spans.end[marked])[place])
        others, own = np.flatnonzero(~inside), ~inside[self._waits]
        found = self._match(self._spans.take(others), np.searchsorted(others, self._waits[own]))
        known = Purposes(np.full(len(own), EVALUATE, np.uint8), start[self._waits], np.zeros(len(own), bool))
        known.purpose[own], known.moment[own], known.part[own] = found
        return known

    def _match(self, spans: Spans, waits: Ints) -> Purposes:
        """Judge the fetches at these places by the other spans."""
        start = spans.start
        backwards = np.flatnonzero(spans.code == BACKWARD)
        if _in_turn(spans, waits, backwards):
            return all_trained(start[backwards])
        fetches = ThreadWaits(*(column[waits] for column in (spans.key, start, spans.end)))
        places = np.flatnonzero(spans.code == FORWARD)
        forwards = Forwards(start[places], spans.key[places])
        if not len(backwards):
            return purposes_of(fetches, forwards, self.updates.time, sparse=True)
        places = np.flatnonzero(spans.code == ITER)
        return purposes_of(fetches, forwards, start[backwards], Rounds(spans.key[places], start[places]))

    def _sides(self, first: int, last: int, rows: Ints) -> NDArray[np.uint8] | None:
        """For some spans: does each belong to training, to evaluation, or to either? None: nothing is evaluation."""
        code = self._spans.code[first:last]
        forwards, starting = np.flatnonzero(code == FORWARD), np.flatnonzero(code == ITER)
        marked = code == EVALUATION
        waits = slice(*np.searchsorted(self._waits, [first, last]))
        evaluates = self.purposes.purpose[waits] == EVALUATE
        known = evaluates.any() or marked.any() or (self._evaluated and len(starting))
        if not known and not _bare(self._spans.key[first:last][forwards]).any():
            return None
        sides = np.full(last - first, EITHER, np.uint8)
        sides[(code == BACKWARD) | (code == OPTIMIZER)] = TRAINING
        sides[marked] = EVALUATING
        sides[self._waits[waits] - first] = np.where(evaluates, EVALUATING, TRAINING)
        sides[starting] = self._iterator_sides(self._spans.key[first:last][starting])
        sides[forwards] = self._forward_sides(forwards + first, rows[forwards], first, rows)
        return sides

    def _iterator_sides(self, keys: Ints) -> NDArray[np.uint8]:
        """The start of a loader is for what its first batch is for, and so is its end."""
        sides = np.full(len(keys), EITHER, np.uint8)
        if len(keys) and len(self._waits):
            iterators, first = np.unique(iteration_of(self._spans.key[self._waits]), return_index=True)
            place = np.minimum(np.searchsorted(iterators, iteration_of(keys)), len(iterators) - 1)
            evaluates = self.purposes.purpose[first[place]] == EVALUATE
            same = iterators[place] == iteration_of(keys)
            sides[same] = np.where(evaluates, EVALUATING, TRAINING)[same]
        return sides

    def _forward_sides(self, forwards: Ints, of: Ints, first: int, rows: Ints) -> NDArray[np.uint8]:
        """A forward is for what its batch is for. Where nothing was fetched for it, its modes tell.

        After a batch for evaluation it is still training if gradients were on and a backward comes before any other fetch:
        some loops evaluate between the fetch of a batch and its use.
        """
        own, purpose = self._fed(forwards, of, first, rows)
        modes = self._spans.key[forwards]
        evaluates = _bare(modes) & ~own
        if self._habits:
            evaluates &= modes & FORWARD_LEARNED != 0
        if not self._acts:
            evaluates &= modes & FORWARD_TRAINING == 0
        doubtful = np.flatnonzero(own & (purpose == EVALUATE))
        if len(doubtful):
            key = self._spans.key[forwards[doubtful]]
            learns = ((key == NONE) | (key & FORWARD_GRAD != 0)) & self._learns(forwards[doubtful])
            evaluates[doubtful] = ~learns
        kind = np.where(
            modes & FORWARD_TRAINING, APART, EVALUATING
        )  # a policy that acts between steps of an environment
        return np.where(evaluates, kind, TRAINING).astype(np.uint8)

    def _fed(self, forwards: Ints, of: Ints, first: int, rows: Ints) -> tuple[Flags, NDArray[np.uint8]]:
        """For each forward, which lies in the row `of`: was a batch fetched in the same step before it, and for what?

        `rows` are those of the spans from `first` on.
        """
        if not len(self._waits):
            return np.zeros(len(forwards), bool), np.full(len(forwards), TRAIN, np.uint8)
        batch = np.searchsorted(self._waits, forwards) - 1  # the last fetch before each
        at = self._waits[batch] - first
        near = (batch >= 0) & (at >= 0)
        own = near & (rows[np.where(near, at, 0)] == of)
        return own, self.purposes.purpose[batch]

    def _bare_is_habit(self) -> bool:
        """Do most steps have a forward without gradients and without a batch, of a model that does not learn? Then it is a part of them."""
        forwards = self._bare_forwards()
        if not len(forwards) or not len(self.ends):
            return False
        rows = self._rows(0, len(self._cuts) - 1)
        own, _ = self._fed(forwards, rows[forwards], 0, rows)
        steps = np.unique(rows[forwards[~own]])
        return len(steps) > _HABIT * len(self.ends)

    def _acts_apart(self) -> bool:
        """Are forwards in training mode without gradients no part of the step? They are if most steps have one, and none comes after the last."""
        acting = np.flatnonzero((self._spans.code == FORWARD) & (self._spans.key == FORWARD_TRAINING | FORWARD_LEARNED))
        steps = np.unique(np.searchsorted(self._cuts[1:-1], acting, side="right"))
        return bool(len(steps)) and bool(steps[-1] == len(self.ends) or len(steps) <= _HABIT * len(self.ends))

    def _bare_forwards(self) -> Ints:
        """Where the forwards are that were without training and gradients, of models that never had them."""
        found = [np.zeros(0, np.int64)]
        for low in range(0, len(self._spans.code), BLOCK):
            forwards = low + np.flatnonzero(self._spans.code[low : low + BLOCK] == FORWARD)
            modes = self._spans.key[forwards]
            found.append(forwards[_bare(modes) & (modes & FORWARD_LEARNED == 0)])
        return np.concatenate(found)

    def _learns(self, forwards: Ints) -> Flags:
        """Whether a backward comes after each, before the next fetch."""
        nothing = len(self._spans.code)
        backwards = np.append(np.flatnonzero(self._spans.code == BACKWARD), nothing)
        waits = np.append(self._waits, nothing)
        found: Flags = (
            backwards[np.searchsorted(backwards[:-1], forwards)] < waits[np.searchsorted(waits[:-1], forwards)]
        )
        return found


def _ends(spans: Spans, updates: Ints, *, flat: bool) -> tuple[Ints, Ints]:
    """Where each step ends, and how many spans begin before that. `flat`: no span is inside another.

    An update inside a span (the optimizer's) ends its step with that span.
    """
    before = places_in(spans.start, updates, "left")
    if not len(spans.start):
        return updates, before
    if flat:  # the next one begins later than both
        return later_ends(updates, spans.end, before), before
    around, after = before - 1, np.minimum(before, len(spans.start) - 1)
    reach = np.maximum.accumulate(spans.end)
    # Something may still be open when the next one begins: then the step ends with the last of these.
    crossed = np.flatnonzero((spans.start[after] < reach[around]) & (around >= 0) & (before <= after))
    if len(crossed):
        last = np.flatnonzero(np.append(spans.start[1:] >= reach[:-1], True))
        around[crossed] = last[np.searchsorted(last, around[crossed])]
    ends = np.where(around >= 0, np.maximum(updates, reach[around]), updates)
    later = np.flatnonzero((spans.start[after] < ends) & (before <= after))
    before[later] = np.searchsorted(spans.start, ends[later])
    return ends, before


def _in_turn(spans: Spans, waits: Ints, backwards: Ints) -> bool:
    """Whether each fetch is followed by one of the backwards, which are at these places, as it mostly is."""
    if len(backwards) != len(waits):
        return False
    for low in range(0, len(backwards), BLOCK):
        some, begun = waits[low : low + BLOCK + 1], spans.start[backwards[low : low + BLOCK]]
        late = (spans.end[some[: len(begun)]] > begun).any()
        if late or (begun[: len(some) - 1] >= spans.start[some[1:]]).any():
            return False
    return True


def _bare(keys: Ints) -> Flags:
    """Which forwards, by their keys, were without training and gradients; in training mode, if the model learns in others."""
    found: Flags = (keys & _MODES == 0) & (keys != NONE) | (keys & (FORWARD_GRAD | FORWARD_LEARNED) == FORWARD_LEARNED)
    return found


def _outermost_waits(spans: Spans, *, flat: bool) -> Ints:
    """Where the fetches are that lie in no other fetch (of a loader inside a dataset)."""
    waits = np.flatnonzero(spans.code == INPUT_WAIT)
    if flat:
        return waits
    reach = np.maximum.accumulate(spans.end[waits])
    return waits[np.append(True, spans.start[waits[1:]] >= reach[:-1])] if len(waits) else waits


def _without_whole_trainings(spans: Spans, updates: Ints) -> Spans:
    """An evaluation in which parameters are updated is none: somebody put a span around more than that."""
    marked = np.flatnonzero(spans.code == EVALUATION)
    if not len(marked):
        return spans
    inside = np.searchsorted(updates, spans.end[marked]) > np.searchsorted(updates, spans.start[marked])
    kept = np.ones(len(spans.code), bool)
    kept[marked[inside]] = False
    return spans if kept.all() else spans.take(np.flatnonzero(kept))


def _named_apart(spans: Spans, updates: Ints) -> tuple[Spans, Intervals]:
    """The phases, and the time between them that the program has named. What holds a phase or an update says nothing of it."""
    named = np.flatnonzero(spans.code == NAMED)
    if not len(named):
        return spans, Intervals(named, named)
    found, phases = sort_spans(spans.take(named)), sort_spans(spans.take(np.flatnonzero(spans.code != NAMED)))
    moments = np.sort(np.append(phases.start, updates))
    around = np.append(NONE, np.maximum.accumulate(phases.end))[
        np.searchsorted(phases.start, found.start, side="right")
    ]
    empty = np.searchsorted(moments, found.start, side="right") >= np.searchsorted(moments, found.end)
    found = found.take(np.flatnonzero(empty & (around <= found.start)))
    outer = np.append(NONE, np.maximum.accumulate(found.end))[: len(found.end)] <= found.start
    return phases, Intervals(found.start[outer], found.end[outer])
