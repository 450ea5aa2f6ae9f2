"""The trace that runs in this process, and how a call gets into it.

One trace is active at a time: of traces inside each other the inner one records, and the outer one goes on after it.
A call is noted when the function is entered (parents stand before children) and completed when it is left. Nothing here
raises into the traced program.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from sonde.capture.context import TracePosition, leaves
from sonde.capture.definition import TraceDef, shown_name
from sonde.capture.result import TraceCall, TraceResult
from sonde.capture.traceable import watch
from sonde.events.recorder import loader_worker, thread_name
from sonde.guard import guard
from sonde.hooks.points import quiet
from sonde.hooks.torch import private
from sonde.values import identity
from sonde.values.note import SEQUENCE, CapturedValue, Note
from sonde.values.snapshot import Keep, freeze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sonde.capture.external import Capture
    from sonde.capture.plan import Plan
    from sonde.capture.workers import Spool
    from sonde.values.note import Item

Given: TypeAlias = "Callable[[], Iterable[tuple[str, Any]]]"  # gives the names and values of arguments
MAX_CALLS = 10_000  # of one trace, in one process
MAX_YIELDED = 1_000  # values kept of one generator
CONSUMING = ("dataset_getter", "collate")  # stages whose functions may use up what they are given: it was made for them
TOTAL_COPIES = 32  # times the limit of one value: what all copies of one trace may take together


@dataclass(slots=True, eq=False)
class CallFrame:
    """A call that runs: its record, the frame around it, and what noting the calls inside it has cost."""

    tape: Tape
    call: TraceCall
    outer: CallFrame | None
    given: list[tuple[str, Any]]  # the arguments themselves, to look at them again when the call ends
    pid: int = field(default_factory=os.getpid)
    begun: int = 0  # when the function was entered, for the last time if it runs in pieces
    spent: int = 0  # in earlier pieces
    cost: int = 0
    token: Any = None
    yielded: list[CapturedValue] = field(default_factory=list)


_frame: ContextVar[CallFrame | None] = ContextVar("sonde_flow_frame", default=None)


class _Busy(threading.local):
    """Is this thread noting a value? What it calls for that (a copy to the CPU, a repr) is not the program's."""

    now = False


_busy = _Busy()


@contextmanager
def _noting(doing: str) -> Iterator[None]:
    """What is called here is ours, and so are its failures."""
    _busy.now = True
    try:
        with guard(doing), quiet():
            yield
    finally:
        _busy.now = False


class Tape:
    """A trace while it runs: the result that it fills, what it keeps, and where the program is."""

    def __init__(self, result: TraceResult, plan: Plan, keep: Keep) -> None:
        self.result = result
        self.plan = plan
        self.keep = keep
        self.place = TracePosition(plan)
        self.pid = os.getpid()
        self.renew_lock()
        self.count = 0
        self.dropped = 0
        self.copied = 0  # bytes
        self.next = 0  # number of the next call
        self.captures: list[Capture] = []  # that end with this trace
        self.deliver: Callable[[TraceCall], None] | None = None  # in a worker: where finished calls go
        self.over: Callable[[], bool] = lambda: False  # in a worker: has the trace ended?
        self.lost: Callable[[int], None] = lambda _: None  # in a worker: tells how many calls were not captured
        self.near: Callable[[], bool] = lambda: True  # in a worker: may the next batch be for a step that is wanted?
        self.waiting: list[TraceCall] = []  # calls of workers for batches that have not been delivered
        self.spool: Spool | None = None  # through which calls of other processes come
        self.starter: Callable[[], None] | None = None  # ends the starting of workers
        self.phase: str | None = None  # in which the program says it is
        self.phases: dict[int | None, str | None] = {}  # loader -> the phase that it was used in
        self.loops = 0  # over loaders
        self.iterators: set[int] = set()  # ids of iterators that were made in this trace
        self.given: dict[int, int] = {}  # items that each of them has given
        self.ahead = 0  # batches that workers may be ahead of the program
        self.signals: set[str] = set()  # that were given to workers

    @property
    def hides(self) -> bool:
        """Are texts left out, and so the ids of items?"""
        return self.keep.values != "full"

    def renew_lock(self) -> None:
        """Held while calls get their numbers: anew in a forked child, where another thread may have held it."""
        self.lock = threading.RLock()

    def reset(self) -> None:
        """Forget the calls that were captured so far."""
        self.result.reset()
        self.count = self.dropped = self.copied = 0

    def note(self, text: str) -> None:
        """Say something that a reader of the result should know, once."""
        if text not in self.result.notes:
            self.result.notes.append(text)

    # ── a call ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self, definition: TraceDef, disp_name: str, values: Iterable[tuple[str, Any]], items: tuple[Item, ...] | None
    ) -> CallFrame | None:
        started = time.monotonic_ns()
        if self.count >= MAX_CALLS:
            self.dropped += 1
            self.lost(self.dropped)
            return None
        outer = _frame.get()
        if outer is not None and (outer.tape is not self or outer.pid != os.getpid()):
            outer = None
        given = list(values)
        kept = [self._keep(value, name) for name, value in given]
        where = self.place.find(kept, None if outer is None else outer.call.about)
        if where is None:
            return None
        call = TraceCall(
            disp_name,
            func_name=definition.func_name,
            stage_name=definition.stage_name,
            inputs=kept,
            result_name=definition.result_name,
            pid=os.getpid(),
            thread=thread_name(_thread.get_native_id()),
            worker=loader_worker(),
            epoch=where.epoch,
            step=where.step,
            loader=where.loader,
            batch=where.batch,
            items=where.items if items is None else items,
            phase=self.phase,
        )
        self._number(call, outer)
        frame = CallFrame(self, call, outer, given)
        frame.token = _frame.set(frame)
        frame.begun = call.about.start_ns = time.monotonic_ns()
        if outer is not None:
            outer.cost += frame.begun - started
        return frame

    def _number(self, call: TraceCall, outer: CallFrame | None) -> None:
        with self.lock:
            call.about.seq = self.next
            call.about.parent = None if outer is None else outer.call.about.seq
            self.count += 1
            self.next += 1
            if self.deliver is None:
                self.result.add(call)

    def finish(self, frame: CallFrame, output: CapturedValue | None, error: BaseException | None, stopped: int) -> None:
        about = frame.call.about
        about.output = output
        about.error = None if error is None else type(error).__name__
        frame.given = []  # a task that was started in the call may hold on to the frame
        about.duration_ns = max(frame.spent + (stopped - frame.begun if frame.begun else 0) - frame.cost, 0)
        if output is not None:
            self.place.claim(output, about)
        if self.deliver is not None:
            self.deliver(frame.call)
        if frame.outer is not None:
            frame.outer.cost += frame.cost + time.monotonic_ns() - stopped

    @guard("checking the arguments of a call for changes")
    def look_again(self, frame: CallFrame, result: object) -> None:
        """Keep the arguments that the call has changed in place, unless it gives back what it has changed."""
        about = frame.call.about
        if self.keep.values == "off" or about.stage_name in CONSUMING:
            return
        for (name, value), before in zip(frame.given, about.inputs, strict=True):
            after = freeze(value, self.keep._replace(values="summary"), name)
            numbers = set(changed(before.note, after.note))
            arrays = [array for array in leaves(value) if identity.number(array) in numbers]
            if numbers and not (arrays and all(identity.shared(array, leaves(result)) for array in arrays)):
                about.changed = [*about.changed, self._keep(value, name)]

    def _keep(self, value: object, name: str) -> CapturedValue:
        keep = self.keep
        if keep.values == "full" and self.copied > TOTAL_COPIES * keep.limit:
            keep = keep._replace(values="described")
        kept = freeze(value, keep, name)
        if keep.values == "full":
            self.copied += size(kept.note)
        return kept


def changed(before: Note, after: Note) -> Iterator[int]:
    """The numbers of the arrays in a value that are the same objects as before, with other content."""
    if before.identity is not None and before.identity == after.identity and before.digest != after.digest:
        yield before.identity
    for (_, one), (_, other) in zip(before.children, after.children, strict=False):
        yield from changed(one, other)


def size(note: Note) -> int:
    """How many bytes the arrays of a value have."""
    return (note.nbytes or 0) + sum(size(child) for _, child in note.children)


# ── which trace is active ────────────────────────────────────────────────────────────────────────────────────────────


class _State:
    """The traces of this process, the active one last."""

    def __init__(self) -> None:
        self.tapes: list[Tape] = []
        self.waiting: list[Capture] = []  # made while no trace was active
        self.last: TraceResult | None = None


_state = _State()


def current() -> Tape | None:
    """The active trace."""
    return _state.tapes[-1] if _state.tapes else None


def tapes() -> tuple[Tape, ...]:
    """All traces that run, the active one last."""
    return tuple(_state.tapes)


def limit() -> int | None:
    """To how many items loaders are limited now; None: they are not. A trace inside another one does not undo its limit."""
    return next((tape.plan.items for tape in reversed(_state.tapes) if tape.plan.items is not None), None)


def push(tape: Tape) -> None:
    """Make this trace the active one."""
    tape.captures += _state.waiting
    _state.waiting.clear()
    _state.tapes.append(tape)
    watch(True)


def pop(tape: Tape) -> None:
    """End this trace, and those that were left open inside it."""
    while tape in _state.tapes:
        ended = _state.tapes.pop()
        for capture in reversed(ended.captures):
            capture.undo()
    watch(bool(_state.tapes))


def become(tape: Tape | None) -> None:
    """In a worker: this trace is the only one; None: there is none any more."""
    _state.tapes[:] = [] if tape is None else [tape]
    _frame.set(None)
    watch(tape is not None)


def own(capture: Capture) -> None:
    """Let a capture end with the active trace, or, if there is none, with the next one."""
    tape = current()
    (_state.waiting if tape is None else tape.captures).append(capture)


def disown(capture: Capture) -> None:
    """A block ends this capture."""
    for group in (_state.waiting, *(tape.captures for tape in _state.tapes)):
        if capture in group:
            group.remove(capture)


def remember(result: TraceResult) -> None:
    """Keep this result for `last()`."""
    _state.last = result


def last() -> TraceResult | None:
    """The result of the last trace, even if an exception ended it; None if there is none."""
    return _state.last


def get_trace() -> TraceResult | None:
    """The result of the active trace; None if no trace is active."""
    tape = current()
    return None if tape is None else tape.result


@contextmanager
def phase(name: str | None) -> Iterator[None]:
    """Name the current part of the program for calls of the active trace. Does nothing if no trace is active."""
    tape = current()
    if tape is None:
        yield
        return
    outer, tape.phase = tape.phase, name
    try:
        yield
    finally:
        tape.phase = outer


def reset_trace() -> None:
    """Delete what the active trace has captured so far. Does nothing if no trace is active."""
    tape = current()
    if tape is not None:
        tape.reset()


# ── for those who note calls ─────────────────────────────────────────────────────────────────────────────────────────


def enter(
    definition: TraceDef, disp_name: str, arguments: Given, items: tuple[Item, ...] | None = None
) -> CallFrame | None:
    """Note that a function is entered; None if it is not to be noted. `arguments` gives names and values."""
    tape = current()
    if tape is None or _busy.now or not tape.place.wanted() or _torch_records():
        return None
    with _noting("capturing the arguments of a call"):
        return tape.begin(definition, disp_name, arguments(), items)
    return None


def follow(
    definition: TraceDef, disp_name: str, arguments: Given, items: tuple[Item, ...] | None = None
) -> CallFrame | None:
    """As `enter`, for a function that nobody has named: a trace may do without those."""
    tape = current()
    return enter(definition, disp_name, arguments, items) if tape is not None and tape.plan.automatic else None


def _torch_records() -> bool:
    """Is torch.jit writing down every operation on tensors? Ours would become part of the user's graph."""
    return hasattr(sys.modules.get("torch"), "jit") and private.tracing_state()() is not None


def leave(frame: CallFrame | None, result: object = None, error: BaseException | None = None) -> None:
    """Note that it was left, with its result or an exception."""
    stopped = time.monotonic_ns()
    if frame is None or frame.pid != os.getpid():  # a child of a fork leaves what its parent entered
        return
    _frame.set(frame.outer)
    with _noting("capturing the result of a call"):
        output = None
        if error is None:
            output = frame.tape._keep(result, frame.call.about.result_name)
            frame.tape.look_again(frame, result)
        frame.tape.finish(frame, output, error, stopped)


def finish_call(frame: CallFrame | None, call: Callable[[], Any]) -> Any:
    """Call what was entered, and leave it."""
    try:
        result = call()
    except BaseException as error:
        leave(frame, error=error)
        raise
    leave(frame, result)
    return result


def withdraw(frame: CallFrame | None) -> None:
    """It was no call after all: an iterator that had nothing more to give."""
    if frame is None or frame.pid != os.getpid():
        return
    _frame.set(frame.outer)
    tape = frame.tape
    calls = tape.result._stages[frame.call.about.stage_name].calls
    if tape.deliver is None and frame.call in calls:
        calls.remove(frame.call)
    tape.count -= 1


# ── calls that run in pieces: generators and coroutines ──────────────────────────────────────────────────────────────


class CallLife:
    """The life of a generator or coroutine that is noted: between its pieces it is nobody's parent."""

    __slots__ = ("frame",)

    def __init__(self, frame: CallFrame | None) -> None:
        self.frame = frame
        self.suspend()

    def resume(self) -> None:
        """Its code runs again."""
        if self.frame is not None:
            self.frame.outer = _frame.get()
            _frame.set(self.frame)
            self.frame.begun = time.monotonic_ns()

    def suspend(self) -> None:
        """It waits, or has given a value."""
        frame = self.frame
        if frame is not None:
            if frame.begun:
                frame.spent += time.monotonic_ns() - frame.begun
            frame.begun = 0
            if _frame.get() is frame:
                _frame.set(frame.outer)

    def gave(self, value: object) -> None:
        """It has yielded a value."""
        frame = self.frame
        if frame is None or len(frame.yielded) > MAX_YIELDED:
            return
        started = time.monotonic_ns()
        with _noting("capturing the output of a generator"):
            frame.yielded.append(frame.tape._keep(value, str(len(frame.yielded))))
        frame.cost += time.monotonic_ns() - started

    def close(self, error: BaseException | None = None, result: object = None, *, gives: bool = False) -> None:
        """It has ended. `gives`: its output is what it has yielded, not what it returned."""
        frame = self.frame
        if frame is None or frame.pid != os.getpid():
            return
        outer, frame.outer = frame.outer, None
        with _noting("capturing the end of a generator"):
            name = frame.call.about.result_name
            output = _yielded(frame.yielded, name) if gives else None
            if not gives and error is None:
                output = frame.tape._keep(result, name)
                frame.tape.look_again(frame, result)
            frame.tape.finish(frame, output, error, time.monotonic_ns())
        frame.outer = outer


def _yielded(values: list[CapturedValue], name: str) -> CapturedValue:
    shown = values[:MAX_YIELDED]
    note = Note(
        SEQUENCE,
        "generator",
        length=len(shown),
        cut=len(values) > MAX_YIELDED or any(kept.note.cut for kept in shown),
        children=tuple((kept.name, kept.note) for kept in shown),
    )
    return CapturedValue(name, note, [kept.value for kept in shown])


def name_of(owner: object, function: str) -> str:
    """The name that is shown for a function of this object or class."""
    kind = owner if isinstance(owner, type) else type(owner)
    return shown_name(kind.__name__, function)
