"""Calls that are captured in other processes: loader workers and forked children write them into a folder.

The folder is made by the first process that has something to write. The main process reads what has arrived when
somebody looks at the result, and when the trace ends; then it removes the folder, by which workers that live on know
that the trace is over.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sonde.capture import file, tape as tapes
from sonde.capture.plan import Plan
from sonde.capture.result import TraceResult
from sonde.capture.torch import loaders
from sonde.guard import guard
from sonde.store import scratch
from sonde.values.snapshot import Keep

if TYPE_CHECKING:
    from sonde.capture.call import TraceCall
    from sonde.values.note import Item

GO, DONE = "go", "done"  # files in the folder: from here on, and no more, for a trace of certain steps


LOST = "lost-"  # begins the name of a file with the number of calls that a process has not captured


class Spool:
    """The folder through which calls of other processes come, and what was read of it so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: dict[str, int] = {}

    def open(self) -> None:
        """Make the folder: from now on workers write into it."""
        os.mkdir(self.path, 0o700)

    def read(self) -> list[TraceCall]:
        """The calls that have arrived since the last look."""
        with guard("reading what loader workers captured"):
            if os.path.isdir(self.path):
                return file.read_calls(self.path, self.seen)
        return []

    def write(self, call: TraceCall) -> None:
        """Add a call, in a worker."""
        if os.path.isdir(self.path):  # else the trace is over
            file.write_call(self.path, call)

    def lose(self, count: int) -> None:
        """Say, in a worker, how many calls it has not captured."""
        with open(os.path.join(self.path, f"{LOST}{os.getpid()}"), "w", encoding="utf-8") as stream:
            stream.write(str(count))

    def lost(self) -> int:
        """How many calls all workers together have not captured."""
        total = 0
        with guard("counting calls that loader workers did not capture"):
            for name in os.listdir(self.path):
                if name.startswith(LOST):
                    with open(os.path.join(self.path, name), encoding="utf-8") as stream:
                        total += int(stream.read(20) or 0)
        return total

    def signal(self, name: str) -> None:
        """Tell workers that the steps that are wanted are near, or over."""
        with guard("signalling loader workers when to capture"), open(os.path.join(self.path, name), "xb"):
            pass

    def signalled(self) -> bool:
        """Are the steps that are wanted near?"""
        return os.path.exists(os.path.join(self.path, GO)) and not os.path.exists(os.path.join(self.path, DONE))

    def close(self) -> None:
        """Remove the folder."""
        scratch.remove(self.path)


def new_spool() -> Spool:
    """A folder that only this user can read. What killed traces have left is removed."""
    with guard("deleting files of killed processes"):
        scratch.remove_dead()
    return Spool(os.path.join(scratch.folder(), scratch.name()))


# ── in a worker ──────────────────────────────────────────────────────────────────────────────────────────────────────


def arguments(tape: tapes.Tape, spool: Spool) -> tuple[Any, ...]:
    """What a worker has to know, as values that can be sent to it."""
    keep = tape.keep
    return spool.path, tape.plan.as_json(), [keep.values, keep.limit, sorted(keep.exclude)]


def start(path: str, plan: dict[str, Any], keep: list[Any]) -> None:
    """In a loader worker, forked or not: capture for the trace that writes to `path`."""
    values, limit, exclude = keep
    tape = tapes.Tape(TraceResult(), Plan.from_json(plan), Keep(values, limit, frozenset(exclude)))
    spool = Spool(path)
    _send(tape, spool)
    tape.near = spool.signalled
    tapes.become(tape)
    loaders.watch()


def _send(tape: tapes.Tape, spool: Spool) -> None:
    tape.deliver = spool.write
    tape.lost = spool.lose
    tape.over = lambda: not os.path.isdir(spool.path)


def in_child(tape: tapes.Tape, spool: Spool) -> None:
    """In any other process that was forked while the trace runs: send calls to the trace's process."""
    tape.renew_lock()
    _send(tape, spool)
    tape.count = tape.dropped = 0
    tape.place.leave()


# ── in the main process ──────────────────────────────────────────────────────────────────────────────────────────────


def merge(tape: tapes.Tape, arrived: list[TraceCall], *, final: bool) -> list[TraceCall]:
    """Number all calls in the order of their start, those that have just arrived too; the new ones are returned.

    What was fetched for a batch that nobody has got yet waits. In the end it is kept if everything is to be captured (it
    may hold the failure that is looked for), and left out if only some batches or steps are.
    """
    with tape.lock:
        return _merge(tape, _chosen(tape, arrived, final=final))


def _merge(tape: tapes.Tape, chosen: list[TraceCall]) -> list[TraceCall]:
    known = [call for stage in tape.result._stages.values() for call in stage.calls]
    ordered = sorted([*known, *chosen], key=lambda call: (call.about.start_ns, call.about.seq))
    numbers = {(call.about.pid, call.about.seq): n for n, call in enumerate(ordered)}
    for n, call in enumerate(ordered):
        about = call.about
        about.parent = None if about.parent is None else numbers.get((about.pid, about.parent))
        about.seq = n
    tape.next = len(ordered)
    room = max(tapes.MAX_CALLS - len(known), 0)
    tape.dropped += len(chosen[room:])
    return chosen[:room]


def _chosen(tape: tapes.Tape, arrived: list[TraceCall], *, final: bool) -> list[TraceCall]:
    for call in arrived:
        call.about.loader = tape.place.loader(call.about.loader)
        call.about.phase = tape.phases.get(call.about.loader)
    chosen: list[TraceCall] = []
    waiting: list[TraceCall] = []
    everything = tape.plan.batches is None and tape.plan.steps is None
    for call in [*tape.waiting, *arrived]:
        take = tape.place.belongs(call.about) or (final and everything)
        (chosen if take else waiting).append(call)
    tape.waiting = waiting
    return sorted(chosen, key=lambda call: call.about.start_ns)


def name_items(calls: list[TraceCall]) -> None:
    """Where one call knows the id of an item, let all calls about that item know it."""
    ids: dict[tuple[int | None, object], str] = {}
    for call in calls:
        for item in call.about.items:
            if item.id is not None and item.index is not None:
                ids.setdefault((call.about.loader, item.index), item.id)
    for call in calls:
        if any(item.id is None for item in call.about.items):
            call.about.items = tuple(
                _named(item, ids.get((call.about.loader, item.index))) for item in call.about.items
            )


def _named(item: Item, id: str | None) -> Item:
    return item if item.id is not None or id is None else item._replace(id=id)
