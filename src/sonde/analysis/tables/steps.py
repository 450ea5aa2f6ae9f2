"""The table `steps`: one row for each step of each process that trained, and where its time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde.analysis.records import schema
from sonde.analysis.records.builder import PROCESS_COLUMNS, TableBuilder, give_back
from sonde.analysis.training import losses
from sonde.analysis.training.intervals import BACKWARD, COMMUNICATION, NONE
from sonde.analysis.training.reader import DEVICE_TIMES
from sonde.analysis.training.trainers import Trainer, row_of, trainers
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    from numpy.typing import NDArray

    from sonde.analysis.parts.tables import PartTables
    from sonde.analysis.training.fold import Folded
    from sonde.analysis.training.source import RecordSource

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

ROWS = "step_rows"  # what `steps` and `phases` are made of
IMPORTED = "import"  # the core of processes that `sonde import` wrote
WARMUP = 3  # so many first steps of a process are warm-up
BLOCK = 1 << 15  # steps at a time: so few stay near the processor

_PLAIN = (
    "number", "step", "epoch", "start_ns", "dur_ns", "micro_batches", "samples", "batches", "gc_ns", "device_peak_bytes",
    "loss_parts",
)  # fmt: skip
_WIDE = (
    *(f"{phase}_{what}" for what in ("ns", "calls", "after") for phase in schema.PHASES),
    *(f"{phase}_device" for phase in DEVICE_TIMES),
    "residual_ns",
)
_FLAGS = ("warmup", "skipped", "whole", "has_loss")
COLUMNS = {
    **dict.fromkeys((*_PLAIN, *_WIDE), "BIGINT"),
    **dict.fromkeys(_FLAGS, "BOOLEAN"),
    "loss": "DOUBLE",
}
_GAPS = {*_PLAIN, *_WIDE} - {"number"}
SEALED = (*COLUMNS, *PROCESS_COLUMNS)  # what a sealed part has of them, but for the number

_MADE = {
    # DuckDB takes NaN in an array for "none", and NaN is the loss that matters most.
    "loss": "CASE WHEN has_loss THEN coalesce(loss, 'NaN'::DOUBLE) END",
}


def create(
    connection: duckdb.DuckDBPyConnection, source: RecordSource, rows: Sequence[dict[str, Any]], sealed: PartTables
) -> None:
    """Make the table, and the rows that `phases` is made of too."""
    give_back()  # what loading used is in pieces, too small for what comes now
    found = TableBuilder(ROWS, COLUMNS, _GAPS)
    ends = []
    for trainer in trainers(source, rows, sealed.processes):
        ends.append(_add(found, trainer, _StepFacts(trainer)))
        del trainer  # before rows are packed, and the next one is read: they are large
        found.next_process()
    for end in ends:
        found.add(end)
    found.register(connection, sealed.selects("steps", ["NULL::BIGINT AS number", *SEALED[1:]]))
    columns = ", ".join(f'{_MADE.get(name, f"s.{name}")} AS "{name}"' for name, _ in schema.STEPS)
    connection.execute(f"CREATE OR REPLACE VIEW steps AS SELECT {columns} FROM {ROWS} s WHERE whole")


def _add(found: TableBuilder, trainer: Trainer, facts: _StepFacts) -> dict[str, NDArray[Any]]:
    """Add the steps of a process. What came after the last of them is returned: a row with gaps, which would make queries slow."""
    timeline = trainer.timeline
    updates = timeline.updates
    count = len(updates.time)
    aborted = np.append(updates.key & probe.UPDATE_ABORTED != 0, False)
    skipped = np.append(updates.key & probe.UPDATE_SKIPPED != 0, False)
    warm = _last_of_warmup(trainer, aborted)
    for low in range(0, count + 1, BLOCK):
        high = min(low + BLOCK, count + 1)
        folded = timeline.fold(low, high)
        facts.move_communication(folded, low)
        columns = {
            "number": np.broadcast_to(np.int64(trainer.number), high - low),
            "step": np.append(updates.step[low:high], NONE)[: high - low],
            "epoch": np.append(updates.epoch[low:high], NONE)[: high - low],
            **_times(folded),
            **facts.columns(low, high),
            "warmup": np.arange(low, high) <= warm,
            "skipped": skipped[low:high],
            "whole": np.arange(low, high) < count,
        }
        if aborted[low:high].any():
            kept = np.flatnonzero(~aborted[low:high])
            columns = {name: column[kept] for name, column in columns.items()}
        if high > count:
            after = {name: column[-1:].copy() for name, column in columns.items()}
            columns = {name: column[:-1] for name, column in columns.items()}
        found.add(columns)
    return after


def _last_of_warmup(trainer: Trainer, aborted: NDArray[np.bool_]) -> int:
    """The last row of the warm-up. A trace of another tool may begin later: there, the numbers of the steps tell."""
    rows = np.flatnonzero(~aborted)[:WARMUP].tolist()
    if trainer.row["core"] == IMPORTED:
        steps = trainer.timeline.updates.step
        rows = [row for row in rows if row < len(steps) and steps[row] < WARMUP]
    return int(rows[-1]) if rows else -1


def _times(folded: Folded) -> dict[str, Ints]:
    """Start, duration and phases."""
    known = (folded.start != NONE) & (folded.end != NONE)
    nothing = np.broadcast_to(np.int64(NONE), len(known))
    columns = {
        "start_ns": np.where(known, folded.start, folded.end),
        "dur_ns": np.where(known, folded.end - folded.start, NONE),
    }
    # Nothing of a step may have been recorded but its end: then nobody knows what its time went to.
    recorded = np.zeros(len(known), bool)
    for place, phase in enumerate(schema.PHASES):
        spent, calls, first = folded.spent[:, place], folded.calls[:, place], folded.first[:, place]
        seen = (calls > 0) | (spent > 0)
        some = seen.any()
        recorded |= seen
        columns[f"{phase}_ns"] = spent if seen.all() else np.where(seen, spent, NONE) if some else nothing
        columns[f"{phase}_calls"] = _or_none(calls) if some else nothing
        columns[f"{phase}_after"] = np.where(first != NONE, first - folded.start, NONE) if some else nothing
    residual = columns["dur_ns"] - folded.spent.sum(axis=1)
    columns["residual_ns"] = np.where(known & recorded, residual, NONE)
    return columns


class _StepFacts:
    """What else is known of the steps of a process: batches, samples, losses, collections of garbage."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._rows = len(trainer.timeline.updates.time) + 1
        self._columns = {
            **self._batch_columns(),
            **self._loss_columns(),
            **self._device_columns(),
            "gc_ns": self._collections(),
        }
        self._exposed = self._exposed_communication()
        trainer.counters.clear()  # they are large

    def columns(self, low: int, high: int) -> dict[str, NDArray[Any]]:
        """The columns of some steps."""
        return {name: column[low:high] for name, column in self._columns.items()}

    def move_communication(self, folded: Folded, low: int) -> None:
        """What DistributedDataParallel communicates without computing meanwhile lies in the backward: take it out."""
        if self._exposed is None:
            return
        exposed = self._exposed[low : low + len(folded.start)]
        moved = np.minimum(np.nan_to_num(exposed).astype(np.int64), folded.spent[:, BACKWARD])
        folded.spent[:, BACKWARD] -= moved
        folded.spent[:, COMMUNICATION] += moved
        measured = ~np.isnan(exposed) & (folded.calls[:, BACKWARD] > 0)
        folded.calls[measured & (folded.calls[:, COMMUNICATION] == 0), COMMUNICATION] = 1

    def _batch_columns(self) -> dict[str, Ints]:
        """Batches, micro-batches (those of the loader that gave the most, or else backward calls), and samples."""
        timeline = self._trainer.timeline
        keys, rows = timeline.trained()
        batches = _or_none(self._counts(rows))
        if not len(keys):
            micro = _or_none(timeline.count(BACKWARD))
        elif not timeline.purposes.part.any() and probe.loader_of(int(keys.min())) == probe.loader_of(int(keys.max())):
            micro = batches
        else:
            micro = self._micro_batches()
        return {"batches": batches, "micro_batches": micro, "samples": self._samples(keys, rows)}

    def _micro_batches(self) -> Ints:
        """Those of the loader that gave the most."""
        keys, rows = self._trainer.timeline.trained(parts=False)
        loader = probe.loader_of(keys)
        return _or_none(np.max([self._counts(rows[loader == one]) for one in np.unique(loader)], axis=0))

    def _counts(self, rows: Ints) -> Ints:
        return np.bincount(rows, minlength=self._rows)

    def _samples(self, keys: Ints, rows: Ints) -> Ints:
        sizes = self._trainer.counters.get(probe.SAMPLES)
        if sizes is None or not len(sizes["key"]) or not len(keys):
            return np.broadcast_to(np.int64(NONE), self._rows)
        known, values = sizes["key"], sizes["value"]
        if not np.all(known[1:] >= known[:-1]):
            order = np.argsort(known, kind="stable")
            known, values = known[order], values[order]
        if not (np.array_equal(known, keys) and np.all(known[1:] > known[:-1])):  # as they mostly are
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            right = np.flatnonzero(known[place] == keys)
            rows, values = rows[right], values[place[right]]
        if np.all(rows[1:] > rows[:-1]):  # one batch in each step
            total = np.full(self._rows, NONE)
            total[rows] = values
            return total
        total = np.bincount(rows, values, self._rows).astype(np.int64)
        return np.where(self._counts(rows) > 0, total, NONE)

    def _loss_columns(self) -> dict[str, NDArray[Any]]:
        """The loss, whether there is one, and of how many backward passes it is the mean."""
        loss, parts = np.zeros(self._rows), np.zeros(self._rows, np.int64)
        found = losses.losses_of(self._trainer)
        if found is not None:
            found = losses.of_steps(found, self._trainer.timeline)
            loss[found.row], parts[found.row] = found.loss, found.parts
        return {"loss": loss, "has_loss": parts > 0, "loss_parts": _or_none(parts)}

    def _device_columns(self) -> dict[str, Ints]:
        """The time that a device had for each phase, and the most memory that was held on one."""
        times = {f"{phase}_device": self._folded(name, np.add, 0) for phase, name in DEVICE_TIMES.items()}
        return {**times, "device_peak_bytes": self._folded(probe.DEVICE_PEAK, np.maximum, NONE)}

    def _folded(self, name: str, fold: np.ufunc, first: int) -> Ints:
        """All values of a counter in each step, folded into one."""
        found = self._trainer.counters.get(name)
        if found is None or not len(found["value"]):
            return np.broadcast_to(np.int64(NONE), self._rows)
        known = np.isfinite(found["value"])
        row = row_of(self._trainer.timeline, found["start_ns"][known], found["step"][known])
        whole = np.full(self._rows, first, np.int64)
        fold.at(whole, row, found["value"][known].astype(np.int64))
        return np.where(self._counts(row) > 0, whole, NONE)

    def _collections(self) -> Ints:
        found = self._trainer.garbage
        if not len(found["start_ns"]):
            return np.broadcast_to(np.int64(NONE), self._rows)
        row = self._trainer.timeline.step_of(found["start_ns"])
        total = np.bincount(row, found["dur_ns"], self._rows).astype(np.int64)
        return np.where(self._counts(row) > 0, total, NONE)

    def _exposed_communication(self) -> Floats | None:
        """For each step, NaN where it was not measured: communication without the part behind which there was computing."""
        all_of_it, hidden = (self._mean_of(probe.DDP + what) for what in ("backward_comm", "overlap"))
        if all_of_it is None or hidden is None:
            return None
        (means, counts), (hidden_means, hidden_counts) = all_of_it, hidden
        exposed = means * counts - hidden_means * hidden_counts  # of all backward passes of a step
        return np.where((counts > 0) & (hidden_counts > 0), np.maximum(exposed, 0), np.nan)

    def _mean_of(self, name: str) -> tuple[Floats, Ints] | None:
        """The mean of a counter in each step, and of how many values it is."""
        found = self._trainer.counters.get(name)
        if found is None or not len(found["value"]):
            return None
        row = row_of(self._trainer.timeline, found["start_ns"], found["step"])
        counts = self._counts(row)
        with np.errstate(invalid="ignore"):  # a loss may be infinite
            return np.bincount(row, found["value"], self._rows) / np.maximum(counts, 1), counts


def _or_none(counts: Ints) -> Ints:
    """The same array, with NONE where it had nothing."""
    np.putmask(counts, counts == 0, NONE)
    return counts
