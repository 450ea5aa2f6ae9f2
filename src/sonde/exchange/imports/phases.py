"""Finds the forward and backward pass of each step among the operators of torch.profiler, where the trace does not mark them.

The backward pass reaches from the first to the last function that the autograd engine evaluates, in whatever thread. The
forward pass reaches from the first to the last operator between the fetch of the data and that, if autograd gave it a sequence
number, in the thread that trains.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from sonde.exchange.imports.writer import ProcessWriter
from sonde.lazy import numpy as np
from sonde.store import record

OPERATOR = "cpu_op"
ENGINE = "autograd::engine::evaluate_function"
INFERRED = {"inferred": "from operators"}
_LATE = 2**62


class _StepBounds:
    """For each step the first start and the last end of some records in it."""

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = np.array(ends)
        self.first = np.full(len(ends) + 1, _LATE)
        self.last = np.zeros(len(ends) + 1, np.int64)

    def add(self, start: Any, dur: Any) -> None:
        """Take records with these times."""
        rows = self.rows(start)
        np.minimum.at(self.first, rows, start)
        np.maximum.at(self.last, rows, start + dur)

    def rows(self, start: Any) -> Any:
        """The steps at these times; what comes after the last one has a row of its own."""
        return np.searchsorted(self._ends, start, side="right")

    def spans(self) -> list[tuple[int, int]]:
        """Start and duration in each step that has any."""
        there = np.flatnonzero(self.first[:-1] < _LATE)
        return list(zip(self.first[there].tolist(), (self.last - self.first)[there].tolist(), strict=True))


def add_passes(writer: ProcessWriter, training: Hashable, ends: Sequence[int]) -> None:
    """Add the spans `compute.forward` and `compute.backward` to steps with these ends, unless the trace has any."""
    engine, operators = writer.named(OPERATOR, ENGINE), writer.named(OPERATOR)
    if not engine.any() or writer.named("compute", "forward").any() or writer.named("compute", "backward").any():
        return
    data, trains = writer.named("data"), writer.thread(training).ordinal
    backward, forward, fetched = (_StepBounds(ends) for _ in range(3))
    for _, found in writer.records():
        for names, windows in ((engine, backward), (data, fetched)):
            _add(windows, found[names[found["name"]]])
    # What a loader does with tensors has sequence numbers too: a fetch that ends before the backward pass comes first.
    first = np.where(fetched.last <= backward.first, fetched.last, 0)
    for ordinal, found in writer.records():
        if ordinal == trains:
            numbered = found[operators[found["name"]] & ~engine[found["name"]] & (found["key"] != record.NO_KEY)]
            start = numbered["start"].astype(np.int64)
            rows = forward.rows(start)
            inside = (start >= first[rows]) & (start < backward.first[rows]) & (backward.first[rows] < _LATE)
            _add(forward, numbered[inside])
    for name, windows in (("forward", forward), ("backward", backward)):
        for start, dur in windows.spans():
            writer.add(training, "compute", name, start, dur, args=INFERRED)


def _add(windows: _StepBounds, records: Any) -> None:
    spans = records[(records["kind"] & record.KIND_MASK) == record.SPAN]
    windows.add(spans["start"].astype(np.int64), spans["dur"])
