"""The loss of each step as the program would print it, and the table `losses`: one for each optimizer.

- A loss belongs to the optimizer that updates next, or in whose closure it was computed; of several closures in one update the
  first counts, whose loss `optimizer.step(closure)` returns.
- Losses that were divided by the number of micro-batches before their backward pass are multiplied by it again. The framework says
  so, or the divisor is as large as the number of backward passes of most steps.
- The loss of a step is the mean over its micro-batches, for the optimizer that ended it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.analysis.records import schema
from sonde.analysis.records.builder import TableBuilder
from sonde.analysis.training.intervals import NONE
from sonde.analysis.training.trainers import row_of, trainers
from sonde.lazy import numpy as np
from sonde.store import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    from numpy.typing import NDArray

    from sonde.analysis.parts.tables import PartTables
    from sonde.analysis.training.breakdown import Timeline
    from sonde.analysis.training.source import RecordSource
    from sonde.analysis.training.trainers import Trainer

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

ROWS = "loss_rows"
_COLUMNS = {**dict.fromkeys(("number", "step", "epoch", "optimizer"), "BIGINT"), "loss": "DOUBLE"}
_GAPS = ("step", "epoch", "optimizer")


class StepLosses(NamedTuple):
    """One row for each step and optimizer, in the order of both; `optimizer` is NONE if no update followed.

    `parts`: the value is the mean of so many backward passes, and nobody knows whether the program had divided them.
    """

    row: Ints
    optimizer: Ints
    loss: Floats
    parts: Ints


def create(
    connection: duckdb.DuckDBPyConnection, source: RecordSource, rows: Sequence[dict[str, Any]], sealed: PartTables
) -> None:
    """Make the table."""
    found = TableBuilder(ROWS, _COLUMNS, _GAPS)
    for trainer in trainers(source, rows, sealed.processes):
        losses, updates = losses_of(trainer), trainer.timeline.updates
        if losses is None:
            continue
        step, epoch = (np.append(column, NONE)[losses.row] for column in (updates.step, updates.epoch))
        number = np.full(len(step), trainer.number)
        found.add({"number": number, "step": step, "epoch": epoch, "optimizer": losses.optimizer, "loss": losses.loss})
    found.register(connection)
    made = {"loss": "coalesce(loss, 'NaN'::DOUBLE)"}  # DuckDB takes NaN in an array for "none"
    columns = ", ".join(f'{made.get(name, name)} AS "{name}"' for name, _ in schema.LOSSES)
    selects = [f"SELECT {columns} FROM {ROWS}", *sealed.selects("losses", [name for name, _ in schema.LOSSES])]
    connection.execute(f"CREATE OR REPLACE VIEW losses AS {' UNION ALL '.join(selects)}")


def losses_of(trainer: Trainer) -> StepLosses | None:
    """Those of a process; None: it has none."""
    found = trainer.counters.get(probe.LOSS)
    if found is None or not len(found["value"]):
        return None
    time, value = found["start_ns"], found["value"]
    row = row_of(trainer.timeline, time, found["step"])
    divisor = np.where(found["key"] == NONE, 0, found["key"]) if probe.LOSS in trainer.names else np.zeros_like(row)
    optimizer, first = _optimizers(trainer.timeline, time, row)
    if not first.all():
        row, divisor, optimizer = (column[first] for column in (row, divisor, optimizer))
        value = value[first]
    return _means(row, optimizer, value, divisor)


def of_steps(losses: StepLosses, timeline: Timeline) -> StepLosses:
    """One row for each step that has a loss: that of the optimizer that ended it, or else the mean of all."""
    if np.all(losses.row[1:] != losses.row[:-1]):
        return losses
    own = losses.optimizer == _leaders(timeline)[losses.row]
    lacking = ~np.isin(losses.row, losses.row[own])
    some = StepLosses(*(column[own | lacking] for column in losses))
    return _means(some.row, np.zeros_like(some.row), some.loss, np.zeros_like(some.row))._replace(
        parts=np.maximum.reduceat(some.parts, np.flatnonzero(np.append(True, some.row[1:] != some.row[:-1])))
    )


def _optimizers(timeline: Timeline, time: Ints, row: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """For each loss its optimizer, and whether it counts: of several closures in one update the first."""
    updates = timeline.optimizers()
    place = np.searchsorted(updates.end, time)
    inside = np.append(updates.start, time.max())[place] < time
    again = np.append(False, inside[1:] & inside[:-1] & (place[1:] == place[:-1]))
    optimizer = np.append(updates.key, NONE)[place]
    # What was written later, since it came from a device, is that of the optimizer that ended its step.
    late = np.flatnonzero(timeline.step_of(time) != row)
    optimizer[late] = _leaders(timeline)[row[late]]
    return optimizer, ~again


def _leaders(timeline: Timeline) -> Ints:
    """For each step the optimizer that ended it; NONE: not known."""
    updates = timeline.optimizers()
    place = np.searchsorted(updates.end, timeline.ends, side="right") - 1
    return np.append(np.append(updates.key, NONE)[place], NONE)


def _means(row: Ints, optimizer: Ints, value: Floats, divisor: Ints) -> StepLosses:
    """The mean for each step and optimizer, of losses before they were divided by the number of micro-batches."""
    order = np.lexsort((optimizer, row))
    row, optimizer, divisor = (column[order] for column in (row, optimizer, divisor))
    value = value[order]
    begins = np.append(True, (row[1:] != row[:-1]) | (optimizer[1:] != optimizer[:-1]))
    firsts = np.flatnonzero(begins)
    counts = np.diff(np.append(firsts, len(row)))
    maybe = divisor > 1
    fits = maybe & (divisor == counts[np.cumsum(begins) - 1])
    known = (divisor < 0) | (maybe & (2 * np.count_nonzero(fits) > np.count_nonzero(maybe)))
    with np.errstate(invalid="ignore", over="ignore"):  # a loss may be infinite
        loss = np.add.reduceat(np.where(known, value * np.abs(divisor), value), firsts) / counts
    return StepLosses(row[firsts], optimizer[firsts], loss, np.where(known[firsts], 1, counts))
