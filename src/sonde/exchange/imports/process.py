"""A process of a trace file: what is known of it only at the end, such as its steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from sonde.exchange.imports.parents import StepRange
from sonde.exchange.imports.writer import ProcessWriter
from sonde.store import probe, record
from sonde.store.probe import UPDATE_ABORTED, UPDATE_EXPLICIT

LATE = 0.1  # share of a step after which its first phase is not its start


class OptimizerEnd(NamedTuple):
    """The end of an optimizer step, and its number if the trace has one."""

    thread: Hashable
    end: int
    step: int | None = None
    epoch: int | None = None


class Process:
    """A process of the trace: its records, and what is known of it only at the end."""

    def __init__(self, writer: ProcessWriter) -> None:
        self.writer = writer
        self.pid: int | None = None
        self.name: str | None = None
        self.host: str | None = None
        self.rank: int | None = None
        self.world_size: int | None = None
        self.worker: int | None = None
        self.base = 0  # ns from 1970 to the zero of its times
        self.dated = False  # is it known when it was?
        self.steps: list[StepRange] = []
        self.updates: list[OptimizerEnd] = []
        self.device_times: dict[str, list[tuple[int, int]]] = {}
        self.first_phase: int | None = None  # when it began
        self.devices: set[Hashable] = set()  # threads that are streams of a device
        self.training: Hashable = None  # the thread that has the steps
        self.open: dict[Hashable, list[tuple[dict[str, Any], int]]] = {}  # spans that began


def end_steps(process: Process) -> list[int]:
    """Write the ends of steps, and the time that the device took for their phases; when these ends are."""
    updates = [] if process.writer.named(probe.PROBE, probe.UPDATE).any() else _numbered(process.updates)
    if process.steps:
        updates = []
        for one in sorted(process.steps):
            # A step begins where the one before ends, the first one with its first phase.
            late = (process.first_phase or one.end) - one.start > LATE * (one.end - one.start)
            if updates[-1][0].step != one.step - 1 if updates else late:
                begun = OptimizerEnd(process.training, one.start, one.step - 1)
                updates.append((begun, UPDATE_EXPLICIT | UPDATE_ABORTED))
            updates.append((OptimizerEnd(process.training, one.end, one.step), UPDATE_EXPLICIT))
    for (thread, end, step, epoch), key in updates:
        process.writer.add(thread, probe.PROBE, probe.UPDATE, end, kind=record.MARK, step=step, epoch=epoch, key=key)
        process.training = thread
    for phase, moments in process.device_times.items():
        for start, end in _merged(moments):
            process.writer.add(process.training, probe.PROBE, f"{probe.DEVICE}{phase}", start, value=float(end - start))
    return [one.end for one, _ in updates]


def _numbered(updates: Iterable[OptimizerEnd]) -> list[tuple[OptimizerEnd, int]]:
    """Each update with a number, and its kind. Numbers of the trace count if each is higher than the one before."""
    ends = sorted(updates, key=lambda one: one.end)
    given = [-1 if one.step is None else one.step for one in ends]
    own = bool(given) and given[0] >= 0 and all(one < two for one, two in pairwise(given))
    return [
        (one if own else one._replace(step=number), UPDATE_EXPLICIT if own else 0) for number, one in enumerate(ends)
    ]


def _merged(moments: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments, each once."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(moments):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
