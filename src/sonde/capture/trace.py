"""`trace()`: the block in which values are captured.

with sonde.flow.trace(items=4) as trace:      # loaders give one batch of 4 items, then end
    train_one_epoch(model, loader)
with sonde.flow.trace(batches=2) as trace:    # nothing changes; the first two batches of each loader are captured
    ...
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from sonde import config
from sonde.capture import tape as tapes, workers
from sonde.capture.plan import Plan, checked
from sonde.capture.result import TraceResult
from sonde.capture.torch import loop
from sonde.errors import SettingError
from sonde.events import mark
from sonde.guard import guard
from sonde.hooks.torch import loader as hooks
from sonde.store import folder, scratch
from sonde.values import identity
from sonde.values.snapshot import Keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from sonde.capture.call import TraceCall

VALUES = "values"  # the folder for captured values in a process folder
SUFFIX = ".sonde"


def trace(
    items: int | None = None,
    *,
    batches: int | None = None,
    steps: Iterable[int] | None = None,
    values: str | None = None,
    values_limit: int | str | None = None,
    exclude: Iterable[str] | str | None = None,
    automatic: bool = True,
) -> Tracing:
    """Capture the values that flow through a program, stage by stage, while the block runs.

    `items=N` limits the run: each loop over a loader gets one batch of N different items, and ends. The others only
    observe: `batches=K` the first K batches of each loader, `steps=range(...)` these steps, no argument everything.
    `values`, `values_limit` and `exclude` are settings (docs/reference/settings.md). `automatic=False` captures only
    functions you name with a decorator or `capture`. Raises SettingError before anything runs.
    """
    plan = checked(items, batches, steps)._replace(automatic=automatic)
    settings, complaints = config.load_leniently(values=values, values_limit=values_limit, exclude=exclude)
    _complain(complaints)
    return Tracing(plan, Keep(settings.values, settings.values_limit, frozenset(settings.exclude)))


class Tracing:
    """A trace before, during and after its block: `with trace(...) as result:`. Use it once."""

    def __init__(self, plan: Plan, keep: Keep) -> None:
        """Use `trace()` instead."""
        self.result = TraceResult(plan.items)
        self._tape = tapes.Tape(self.result, plan, keep)
        self._used = False

    def __enter__(self) -> TraceResult:
        if self._used:
            raise SettingError("This trace is already finished. Call sonde.flow.trace(...) again for a new one.")
        self._used = True
        _announce(self._tape.plan)
        try:
            _start(self._tape)
        except BaseException:  # an interrupt: the block will not begin, and so not end
            _stop(self._tape)
            raise
        return self.result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        path = _stop(self._tape)
        if error is not None and not isinstance(error, GeneratorExit | SystemExit):
            with guard("attaching the trace to an exception"):
                _attach(error, self.result, path)


# ── start and end ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Following:
    """What is patched for the traces of this process: by the first one that starts, until the last one has ended."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tapes: list[tapes.Tape] = []
        self.leave: Callable[[], None] | None = None

    def join(self, tape: tapes.Tape) -> None:
        with self.lock:
            self.tapes.append(tape)
            if self.leave is None:
                self.leave = loop.watch()

    def part(self, tape: tapes.Tape) -> None:
        with self.lock:
            self.tapes = [one for one in self.tapes if one is not tape]
            if not self.tapes and self.leave is not None:
                self.leave()
                self.leave = None


_following = _Following()


def _start(tape: tapes.Tape) -> None:
    tapes.push(tape)
    with guard("starting a trace"):
        mark("trace.start", "flow")
        tape.spool = workers.new_spool()
        tape.spool.open()
        tape.result.source = _arrivals(tape)
        tape.starter = hooks.start_in_workers(workers.start, *workers.arguments(tape, tape.spool))
    with guard("following the program for a trace"):
        _following.join(tape)


def _stop(tape: tapes.Tape) -> str | None:
    """End a trace; where it was saved, if it was."""
    try:
        tapes.pop(tape)
    finally:
        with guard("undoing the patches of a trace"):
            _following.part(tape)
        with guard("ending a trace"):
            if tape.starter is not None:
                tape.starter()
    if tape.pid != os.getpid():  # a forked child leaves the block of its parent, who puts the trace together
        return None
    with guard("assembling a trace"):
        _finish_tape(tape)
        if not _following.tapes:
            identity.forget()
    tapes.remember(tape.result)
    with guard("saving a trace"):
        mark("trace.end", "flow")
        return _save_in_run(tape.result)
    return None


def _arrivals(tape: tapes.Tape) -> Callable[[], list[TraceCall]]:
    def arrivals() -> list[TraceCall]:
        with guard("reading what loader workers captured"):
            return workers.merge(tape, [] if tape.spool is None else tape.spool.read(), final=False)
        return []

    return arrivals


def _finish_tape(tape: tapes.Tape) -> None:
    """Take in what workers have captured, and say what is missing."""
    result = tape.result
    result.source = None
    arrived = [] if tape.spool is None else tape.spool.read()
    result.extend(workers.merge(tape, arrived, final=True))
    lost = 0
    if tape.spool is not None:
        lost = tape.spool.lost()
        tape.spool.close()
    workers.name_items(result.calls())
    tape.dropped += lost
    if tape.dropped:
        tape.note(f"{tape.dropped} more calls were not captured: a trace holds at most {tapes.MAX_CALLS}.")
    if tape.copied > tapes.TOTAL_COPIES * tape.keep.limit:
        tape.note("Later values were described but not copied: the copies of this trace had reached their limit.")
    if tape.plan.items is not None and tape.plan.automatic and not tape.loops:
        tape.note(f"items={tape.plan.items} had no effect: no torch DataLoader was used in the block.")


def _announce(plan: Plan) -> None:
    import logging  # the program has asked for messages

    log = logging.getLogger("sonde.flow")
    log.warning("Starting Trace")
    if plan.items is not None:
        log.warning("Trace mode enabled, will only run a single batch of length %d", plan.items)
    elif plan.batches is not None:
        log.warning("Trace mode enabled, observing the first %d batches of each loader", plan.batches)
    elif plan.steps is not None:
        log.warning("Trace mode enabled, observing the steps %s", plan.steps)
    else:
        log.warning("Trace mode enabled, observing everything")


def _complain(complaints: list[str]) -> None:
    """Of what the surroundings say wrongly about values; `init()` complains of the rest."""
    import logging

    for complaint in complaints:
        if any(f"The setting {name} " in complaint for name in ("values", "values_limit", "exclude")):
            logging.getLogger("sonde.flow").warning("%s It is ignored.", complaint)


# ── exceptions, and the run folder ───────────────────────────────────────────────────────────────────────────────────


def _attach(error: BaseException, result: TraceResult, path: str | None) -> None:
    """Put the trace on the exception, and on disk."""
    error.sonde_trace = result  # type: ignore[attr-defined]
    if path is None:
        with guard("saving the trace of an exception"):
            path = _save(result, scratch.folder())
    error.add_note(
        "Sonde captured the values up to this exception: see error.sonde_trace or sonde.flow.last()"
        + (f"; saved in {path}" if path else "")
    )


def _save_in_run(result: TraceResult) -> str | None:
    """Where this process is being recorded, the trace becomes part of the run."""
    here = _process_folder()
    if here is None:
        return None
    values = os.path.join(here, VALUES)
    folder.ensure_folder(values)
    return _save(result, values)


def _save(result: TraceResult, place: str) -> str:
    now = time.time_ns()
    stamp = (
        f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now // 10**9))}.{now % 10**9:09d}"  # in the order of the traces
    )
    path = os.path.join(place, f"trace-{stamp}-{os.getpid()}{SUFFIX}")
    result.save(path)
    return path


def _process_folder() -> str | None:
    """The folder of this process in the run that is being recorded; the newest, if it has several."""
    run: str | None = config.peek("run")
    if run is None or not os.path.isdir(run):
        return None
    stem = f"{folder.host()}-{os.getpid()}-"
    numbers = [name.removeprefix(stem) for name in os.listdir(run) if name.startswith(stem)]
    newest = max((int(number) for number in numbers if number.isdecimal()), default=None)
    return None if newest is None else os.path.join(run, f"{stem}{newest}")


def _in_child() -> None:
    """After a fork: what this process captures goes to its parent's trace."""
    _following.lock = threading.RLock()  # another thread may have held it
    for tape in tapes.tapes():
        if tape.spool is not None:
            workers.in_child(tape, tape.spool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
