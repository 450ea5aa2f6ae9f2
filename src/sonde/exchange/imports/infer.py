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


def add_passes(writer: ProcessWriter, training: Hashable, ends: Sequence[int]) -> None:
    """Add the spans `compute.forward` and `compute.backward` to steps with these ends, unless the trace has any."""
    engine = writer.named(OPERATOR, ENGINE)
    if not engine or writer.named("compute", "forward") or writer.named("compute", "backward"):
        return
    whole = writer.records()
    is_engine = np.isin(whole["name"], engine) & (whole["kind"] == record.SPAN)
    backwards = _windows(whole[is_engine], ends)
    operators = np.isin(whole["name"], writer.named(OPERATOR)) & (whole["kind"] == record.SPAN) & ~is_engine
    operators &= whole["key"] != record.NO_KEY
    numbered = whole[operators & _of_thread(whole, writer.thread(training).ordinal)]
    fetched = _windows(whole[np.isin(whole["name"], writer.named("data")) & (whole["kind"] == record.SPAN)], ends)
    lowest, highest = np.zeros(len(ends) + 1, np.int64), np.zeros(len(ends) + 1, np.int64)
    for row, (begun, _) in backwards.items():  # what a loader does with tensors has sequence numbers too
        first = fetched[row][1] if row in fetched and fetched[row][1] <= begun else 0
        lowest[row], highest[row] = first, begun
    start = numbered["start"].astype(np.int64)
    rows = np.searchsorted(ends, start, side="right")
    forwards = _windows(numbered[(start >= lowest[rows]) & (start < highest[rows])], ends)
    for name, windows in (("forward", forwards), ("backward", backwards)):
        for start, end in windows.values():
            writer.add(training, "compute", name, start, end - start, args=INFERRED)


def _windows(records: Any, ends: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each step the first start and the last end of these records in it."""
    start = records["start"].astype(np.int64)
    row = np.searchsorted(ends, start, side="right")
    found = {}
    for one in np.unique(row).tolist():
        if one < len(ends):
            inside = row == one
            found[one] = (int(start[inside].min()), int((start + records["dur"])[inside].max()))
    return found


def _of_thread(whole: Any, ordinal: int) -> Any:
    """Which records are of this thread."""
    heads = np.flatnonzero(whole["kind"] == record.BLOCK)
    return np.repeat(whole["name"][heads] == ordinal, np.diff(heads, append=len(whole)))
