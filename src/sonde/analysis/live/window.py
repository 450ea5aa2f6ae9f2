"""The newest steps of one process, kept while it runs: how long they took, and which phases their time went to.

What is kept is bounded by steps and by records; the arithmetic is that of the tables (`timeline`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.live.tail import Fresh, nothing
from sonde.analysis.records.schema import PHASES
from sonde.analysis.training.breakdown import Timeline, Updates
from sonde.analysis.training.fold import Folded
from sonde.analysis.training.intervals import BACKWARD, COMMUNICATION, INPUT_WAIT, ITER, NAMED, NONE, Spans
from sonde.analysis.training.purpose import TRAIN
from sonde.analysis.training.trainers import in_turn, phase_of, updates_from_steps
from sonde.lazy import numpy as np
from sonde.store import probe, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

STEPS = 500  # so many of the newest steps are looked at
MOST_RECORDS = 100_000
LONGEST_HISTORY = 240  # values
FIRST_WIDTH = 250_000_000  # ns that one value of a history stands for at first

# What a record is to a window, beside the phases and ITER. A phase that the vocabulary names has VOCABULARY added.
UPDATE, SAMPLES, LOSS, DDP_ALL, DDP_HIDDEN = range(ITER + 1, ITER + 6)
VOCABULARY = 32
OTHER = 255
_COUNTED = {
    probe.UPDATE: UPDATE,
    probe.SAMPLES: SAMPLES,
    probe.LOSS: LOSS,
    f"{probe.DDP}backward_comm": DDP_ALL,
    f"{probe.DDP}overlap": DDP_HIDDEN,
}
_WORK = tuple(PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))


def code_of(cat: str, name: str) -> int:
    """What a record of this name is to a window."""
    if cat == probe.PROBE and name in _COUNTED:
        return _COUNTED[name]
    if (cat, name) == (probe.LOG, probe.LOSS):
        return LOSS + VOCABULARY
    found = phase_of(cat, name)
    if found is None:
        return OTHER
    phase, probed = found
    return phase if probed else phase + VOCABULARY


class StepWindow(NamedTuple):
    """Steps in the order of time. `spent` has a column for each phase and one for the residual, NaN: not recorded."""

    step: Ints
    start: Ints
    end: Ints
    spent: NDArray[np.float64]
    samples: NDArray[np.float64]  # NaN: not known

    @property
    def took(self) -> Ints:
        """How long each step took, in ns."""
        return self.end - self.start

    def after(self, first: int) -> StepWindow:
        """The steps without the first ones."""
        return StepWindow(
            self.step[first:], self.start[first:], self.end[first:], self.spent[first:], self.samples[first:]
        )


def no_steps() -> StepWindow:
    """Nothing."""
    none = np.empty(0, dtype=np.int64)
    return StepWindow(none, none, none, np.empty((0, len(PHASES) + 1)), np.empty(0))


class History:
    """Means over equal stretches of time. When there are too many, two neighbours become one."""

    def __init__(self) -> None:
        self.width = FIRST_WIDTH
        self.first: int | None = None
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, times: Ints, values: Ints | NDArray[np.float64]) -> None:
        """Take values and when they were."""
        if not len(times):
            return
        if self.first is None:
            self.first = int(times.min())
        while (int(times.max()) - self.first) // self.width >= LONGEST_HISTORY:
            self._widen()
        places = np.maximum((times - self.first) // self.width, 0).astype(np.int64)
        missing = int(places.max()) + 1 - len(self._sums)
        self._sums += [0.0] * missing
        self._counts += [0] * missing
        sums, counts = np.bincount(places, values), np.bincount(places)
        for place in np.unique(places).tolist():
            self._sums[place] += float(sums[place])
            self._counts[place] += int(counts[place])

    def values(self) -> list[float | None]:
        """The mean of each stretch, from old to new; None: there was nothing."""
        return [value / count if count else None for value, count in zip(self._sums, self._counts, strict=True)]

    def means(self, width: int, base: int) -> dict[int, float]:
        """The means of wider stretches, by their number from `base` on; those of which nothing is known are left out."""
        sums: dict[int, float] = {}
        counts: dict[int, int] = {}
        for number, count in enumerate(self._counts):
            if count and self.first is not None:
                place = (self.first + number * self.width + self.width // 2 - base) // width
                sums[place] = sums.get(place, 0.0) + self._sums[number]
                counts[place] = counts.get(place, 0) + count
        return {place: sums[place] / counts[place] for place in sums}

    def _widen(self) -> None:
        self.width *= 2
        self._sums = [sum(self._sums[place : place + 2]) for place in range(0, len(self._sums), 2)]
        self._counts = [sum(self._counts[place : place + 2]) for place in range(0, len(self._counts), 2)]


def slowest(histories: Sequence[tuple[History, int]]) -> tuple[list[float | None], int]:
    """At each time the highest of several histories, and how long a value stands for. Each comes with what to add to its clock."""
    known = [(one, offset, one.first + offset) for one, offset in histories if one.first is not None]
    if len(known) < 2:
        return (known[0][0].values(), known[0][0].width) if known else ([], FIRST_WIDTH)
    width, base = max(one.width for one, _, _ in known), min(begun for _, _, begun in known)
    found: dict[int, float] = {}
    for one, offset, _ in known:
        for place, mean in one.means(width, base - offset).items():
            found[place] = max(found.get(place, mean), mean)
    return [found.get(place) for place in range(max(found, default=-1) + 1)], width


class Window:
    """One process. `count`: its updates so far; without any, the steps that the program counted itself.

    `step`, `epoch`, `newest_ns`: of the last one. `trains` is False for a process that never did a step.
    """

    def __init__(self) -> None:
        self.count = 0
        self.aborted = 0
        self.step: int | None = None
        self.epoch: int | None = None
        self.newest_ns: int | None = None
        self.history = History()
        self.losses = History()
        self.loss: float | None = None
        self._kept = nothing()
        self._codes: NDArray[np.uint8] = nothing().threads.astype("u1")
        self._probed: set[int] = set()  # phases that the probes recorded
        self._losses = 0  # so many records
        self._seen_loss = False  # the probes saw one: what the program logs is another one then
        self._dropped = False

    @property
    def trains(self) -> bool:
        """Whether there are steps."""
        return self.count > 0 or bool(len(self._counted_updates().time))

    def add(self, fresh: Fresh, codes: NDArray[np.uint8]) -> None:
        """Take records and what each one is."""
        wanted = np.flatnonzero(codes != OTHER)
        if not len(wanted):
            return
        self._note(fresh.records[wanted], codes[wanted])
        records = np.concatenate([self._kept.records, fresh.records[wanted]])
        threads = np.concatenate([self._kept.threads, fresh.threads[wanted]])
        codes = np.concatenate([self._codes, codes[wanted]])
        order = np.lexsort((records["seq"], records["start"]))
        order = order[max(_first(codes[order]), len(order) - MOST_RECORDS) :]
        self._dropped |= len(order) < len(codes)
        self._kept, self._codes = Fresh(records[order], threads[order]), codes[order]

    def steps(self) -> StepWindow:
        """The newest steps that are complete. One that began before the window is left out: part of it is gone."""
        updates = self._updates() if self.count else self._counted_updates()
        if not len(updates.time):
            return no_steps()
        timeline = Timeline(self._spans(), updates)
        folded = timeline.fold(0, len(updates.time))
        self._move_communication(folded, timeline)
        seen = (folded.calls > 0) | (folded.spent > 0)
        spent = np.where(seen, folded.spent, math.nan)
        residual = np.where(seen.any(axis=1), folded.end - folded.start - folded.spent.sum(axis=1), math.nan)
        good = (updates.key & probe.UPDATE_ABORTED == 0) & (folded.start != NONE)
        if self._dropped:
            good[:1] = False
        columns = np.column_stack([spent, residual])[good]
        return StepWindow(
            updates.step[good], folded.start[good], folded.end[good], columns, self._samples(timeline)[good]
        )

    @property
    def whole(self) -> bool:
        """Whether the window still begins with the first step of the process."""
        return not self._dropped

    def _note(self, records: NDArray[np.void], codes: NDArray[np.uint8]) -> None:
        """What is known of the whole recording, not only of the window."""
        self._probed |= {int(code) for code in np.unique(codes) if code <= ITER}
        self._note_updates(records[codes == UPDATE])
        self._seen_loss |= bool(np.any(codes == LOSS))
        counters = (records["kind"] & record.KIND_MASK) == record.COUNTER  # the program may log a word, too
        self._note_losses(records[counters & (codes == (LOSS if self._seen_loss else LOSS + VOCABULARY))])

    def _note_losses(self, losses: NDArray[np.void]) -> None:
        """Those before they were divided by the number of micro-batches, if that is known: see `losses`."""
        if not len(losses):
            return
        self._losses += len(losses)
        divisor = int(losses["key"][-1]) if self._seen_loss and losses["key"][-1] != record.NO_KEY else 0
        usual = self.count * divisor
        divided = divisor < 0 or (divisor > 1 and abs(self._losses - usual) <= max(divisor, usual / 10))
        values = losses["dur"].copy().view(np.float64) * (abs(divisor) if divided else 1)
        self.loss = float(values[-1])
        finite = np.isfinite(values)
        self.losses.add(losses["start"][finite].astype(np.int64), values[finite])

    def _note_updates(self, updates: NDArray[np.void]) -> None:
        """How many, how long they took, and which is the last."""
        if not len(updates):
            return
        updates = updates[np.argsort(updates["start"], kind="stable")]
        self.count += len(updates)
        self.aborted += int(np.count_nonzero(_bits(updates) & probe.UPDATE_ABORTED))
        times = updates["start"].astype(np.int64)
        if self.newest_ns is None:
            self.history.add(times[1:], np.diff(times))  # nobody knows when the first step began
        else:
            self.history.add(times, np.diff(times, prepend=self.newest_ns))
        self.newest_ns = int(times[-1])
        self.step = None if updates["step"][-1] == record.NO_STEP else int(updates["step"][-1])
        self.epoch = None if updates["epoch"][-1] == record.NO_EPOCH else int(updates["epoch"][-1])

    def _updates(self) -> Updates:
        found = self._kept.records[self._codes == UPDATE]
        steps, epochs = found["step"].astype(np.int64), found["epoch"].astype(np.int64)
        steps[found["step"] == record.NO_STEP] = NONE
        epochs[found["epoch"] == record.NO_EPOCH] = NONE
        return Updates(found["start"].astype(np.int64), steps, epochs, _bits(found))

    def _counted_updates(self) -> Updates:
        """The steps of a program that counts them itself."""
        chosen = self._chosen()
        steps = self._kept.records["step"][chosen].astype(np.int64)
        steps[steps == record.NO_STEP] = -1
        return updates_from_steps(self._spans(), steps, counting=bool(self._probed))

    def _spans(self) -> Spans:
        """The phases of the threads that train, each in its turn."""
        chosen = self._chosen()
        found = self._kept.records[chosen]
        start = found["start"].astype(np.int64)
        codes = self._codes[chosen]
        codes = np.where(codes >= VOCABULARY, codes - VOCABULARY, codes).astype(np.uint8)
        spans = Spans(codes, start, start + found["dur"], found["key"].astype(np.int64))
        owners = self._kept.threads[self._codes == UPDATE]
        if len(np.unique(owners)) < 2:
            return spans
        times = self._kept.records["start"][self._codes == UPDATE].astype(np.int64)
        return in_turn(spans, self._kept.threads[chosen].astype(np.int64), times, owners.astype(np.int64))

    def _chosen(self) -> NDArray[np.intp]:
        """The spans that count: of a phase, those of the probes if they saw it anywhere."""
        wanted = [*range(ITER + 1), *(phase + VOCABULARY for phase in range(ITER) if phase not in self._probed)]
        if not np.isin(self._codes, (INPUT_WAIT, INPUT_WAIT + VOCABULARY)).any():
            wanted.append(NAMED + VOCABULARY)
        chosen = np.isin(self._codes, wanted)
        owners = np.unique(self._kept.threads[self._codes == UPDATE])
        if not len(owners) and chosen.any():
            work = np.isin(self._codes, [*_WORK, *(phase + VOCABULARY for phase in _WORK)])
            weights = np.bincount(self._kept.threads[chosen], 1 + 999 * work[chosen])
            owners = np.array([int(weights.argmax())])
        return np.flatnonzero(chosen & np.isin(self._kept.threads, owners))

    def _move_communication(self, folded: Folded, timeline: Timeline) -> None:
        """What DistributedDataParallel communicates without computing meanwhile lies in the backward: take it out."""
        exposed = self._sum_of(DDP_ALL, timeline) - self._sum_of(DDP_HIDDEN, timeline)
        measured = ~np.isnan(exposed) & (folded.calls[:, BACKWARD] > 0)
        moved = np.minimum(np.maximum(np.nan_to_num(exposed), 0).astype(np.int64), folded.spent[:, BACKWARD])
        folded.spent[:, BACKWARD] -= moved
        folded.spent[:, COMMUNICATION] += moved
        folded.calls[measured & (folded.calls[:, COMMUNICATION] == 0), COMMUNICATION] = 1

    def _sum_of(self, code: int, timeline: Timeline) -> NDArray[np.float64]:
        """The sum of a counter in each step, NaN where there is none. It may be written later, and says for which step."""
        count = len(timeline.updates.time)
        found = self._kept.records[self._codes == code]
        rows = {step: row for row, step in enumerate(timeline.updates.step.tolist())}
        now = timeline.step_of(found["start"].astype(np.int64))
        said = np.array(
            [rows.get(step, at) for step, at in zip(found["step"].tolist(), now.tolist(), strict=True)], np.int64
        )
        late = np.insert(timeline.updates.key & probe.UPDATE_LATE != 0, 0, False)
        row = np.where(late[now], now, said)
        inside = row < count
        sums = np.bincount(row[inside], found["dur"][inside].copy().view(np.float64), minlength=count)
        counts = np.bincount(row[inside], minlength=count)
        return np.where(counts > 0, sums, math.nan)

    def _samples(self, timeline: Timeline) -> NDArray[np.float64]:
        """Samples of the batches that each step trained on; NaN where they are not known."""
        count = len(timeline.updates.time)
        waits, purposes, row = timeline.batches()
        trained = (purposes.purpose == TRAIN) & (row >= 0) & (row < count)
        found = self._kept.records[self._codes == SAMPLES]
        sizes = dict(zip(found["key"].tolist(), found["dur"].copy().view(np.float64).tolist(), strict=True))
        known = [
            (at, sizes[key])
            for at, key in zip(row[trained].tolist(), waits.key[trained].tolist(), strict=True)
            if key in sizes
        ]
        samples = np.full(count, math.nan)
        for at, size in known:
            samples[at] = size + (0.0 if math.isnan(samples[at]) else samples[at])
        return samples


def _bits(updates: NDArray[np.void]) -> Ints:
    """The key of updates, 0 where there is none."""
    return np.where(updates["key"] == record.NO_KEY, 0, updates["key"])


def _first(codes: NDArray[np.uint8]) -> int:
    """The first record that is kept: the update before the newest steps."""
    updates = np.flatnonzero(codes == UPDATE)
    return int(updates[-STEPS - 1]) if len(updates) > STEPS else 0
