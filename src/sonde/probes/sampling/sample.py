"""The probe `--sample`: where all threads are, 50 times a second from the first step on.

A thread of ours reads the stacks that Python itself keeps (`sys._current_frames`); no signal is sent. It needs the GIL for that, and
Python lets a thread that computes keep it for 5 ms: it would be seen where it gives the GIL away, mostly at a wait, and
seldom where it computes. So that time (`sys.setswitchinterval`) is 0.2 ms while we sample.

Each look stands for the time since the one before it. The thread that trains has a record for each look, so that each falls
into a phase; of others, which mostly wait, a record stands for up to a second in one place.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
from time import monotonic_ns
from typing import TYPE_CHECKING

from sonde.events import core, recorder
from sonde.guard import guard
from sonde.hooks.torch.loader import start_in_workers
from sonde.probes import step
from sonde.probes.disable import switch_off
from sonde.probes.sampling.frames import Tree
from sonde.probes.sampling.threads import SampledThread, Threads
from sonde.store.probe import SAMPLE, SAMPLE_STACK, SAMPLE_THREAD_BITS
from sonde.store.record import DETAIL

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from sonde.config import Settings

DOING = "sampling stacks"
MERGED_NS = 10**9  # of a thread that does not train: the longest time that one record stands for
LOOKS = 1_000_000  # after so many, they become so seldom that the time since the start has no more
GOLDEN = 0.6180339887498949  # pauses differ, evenly: else they could keep time with the steps
STOP_SECONDS = 1.0
SWITCH_SECONDS = 0.0002  # how long a thread that computes may keep the GIL when another one wants it
SECOND = 10**9


def install(settings: Settings) -> Callable[[], None]:
    """Sample from the first event of training on, if the setting `sample` says so; in loader workers from their start on."""
    if not settings.sample:
        return lambda: None
    leave = [
        step.at_begin(lambda: begin(settings.sample)),
        start_in_workers(begin_worker, settings.sample),
        recorder.at_end(end),
        end,
    ]

    def uninstall() -> None:
        while leave:
            leave.pop()()

    return uninstall


@guard("starting to sample stacks")
def begin(hz: int) -> None:
    """Sample the threads of this process; the one that calls is that which trains."""
    if _now.sampler is None:
        _now.sampler = StackSampler(hz, _thread.get_ident())
        _now.sampler.start()


def begin_worker(hz: int) -> None:
    """Called in each loader worker."""
    _now.sampler = None  # that of the parent, if this one was forked
    begin(hz)


@guard("ending the samples of stacks")
def end() -> None:
    """Sample no more."""
    sampler, _now.sampler = _now.sampler, None
    if sampler is not None:
        sampler.end()


def running() -> bool:
    """Are stacks sampled in this process?"""
    return _now.sampler is not None


class StackSampler:
    """Looks at the threads of this process. `trainer`: the ident of the one that trains."""

    def __init__(self, hz: int, trainer: int, clock: Callable[[], int] = monotonic_ns) -> None:
        self._period = SECOND // hz
        self._trainer = trainer
        self._clock = clock
        self._tree = Tree()
        self._threads = Threads()
        self._begun = clock()
        self._looks = 0
        self._theirs: float | None = None  # the switch interval of the program
        self._stop = threading.Event()
        self._gone = threading.Event()
        self._gone.set()

    def start(self) -> None:
        """Begin to look, in a thread of ours."""
        self._threads.restart(self._clock())
        self._stop.clear()
        self._gone.clear()
        if self._theirs is None and sys.getswitchinterval() > SWITCH_SECONDS:
            self._theirs = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        _thread.start_new_thread(self._run, ())  # no threading.Thread: the program does not see it among its own

    def pause(self) -> None:
        """Look no more, until `start`."""
        self._stop.set()
        self._gone.wait(STOP_SECONDS)

    def end(self) -> None:
        """Look no more."""
        self.pause()
        self._restore()

    def _restore(self) -> None:
        """Give the program its switch interval back, unless it has set another one meanwhile."""
        if self._theirs is not None and abs(sys.getswitchinterval() - SWITCH_SECONDS) < SWITCH_SECONDS / 10:
            sys.setswitchinterval(self._theirs)
        self._theirs = None

    def _run(self) -> None:
        try:
            with guard(DOING, then=self._give_up):
                while not self._stop.wait(self.next_pause() / SECOND):
                    self.look()
            with guard(DOING):
                self.flush()
        finally:
            self._gone.set()

    def _give_up(self) -> None:
        if _now.sampler is self:
            _now.sampler = None
        self._restore()
        switch_off("sample", DOING)

    def next_pause(self) -> int:
        """How long to wait for the next look, in ns."""
        usual = max(self._period, (self._clock() - self._begun) // LOOKS)
        return int(usual * (0.5 + self._looks * GOLDEN % 1.0))

    def look(self) -> None:
        """Look once."""
        now, me = self._clock(), _thread.get_ident()
        self._looks += 1
        if not step.phases.on:
            self._threads.restart(now)
            return
        stacks = sys._current_frames()
        for ident in [ident for ident in self._threads.alive if ident not in stacks]:
            self._write(self._threads.alive.pop(ident))
        for ident in list(stacks):
            frame = stacks.pop(ident)
            if ident != me:
                self._see(ident, frame, now)
            del frame  # what it holds is not to live longer than in the program

    def _see(self, ident: int, frame: FrameType, now: int) -> None:
        """A thread is at this frame."""
        thread = self._threads.get(ident, now)
        if thread is None:
            return
        node = thread.node if ident != self._trainer and thread.waits(frame) else self._tree.node(frame)
        if thread.node != node:
            self._write(thread)
            thread.node, thread.since = node, now
        thread.spent += now - thread.seen
        thread.seen = now
        if ident == self._trainer or now - thread.since >= MERGED_NS:
            self._write(thread)
            thread.since = now

    def flush(self) -> None:
        """Write what is not written yet."""
        for thread in self._threads.alive.values():
            self._write(thread)

    def _write(self, thread: SampledThread) -> None:
        if thread.spent and thread.node:
            key = thread.number << SAMPLE_THREAD_BITS | thread.node
            core.counter(SAMPLE_STACK, thread.spent, SAMPLE, key, level=DETAIL)
        thread.spent = 0


class _Now:
    """The sampler of this process."""

    def __init__(self) -> None:
        self.sampler: StackSampler | None = None

    def before_fork(self) -> None:
        """No thread of ours runs while the process is copied."""
        if self.sampler is not None:
            self.sampler.pause()

    def in_parent(self) -> None:
        """Go on."""
        if self.sampler is not None:
            self.sampler.start()

    def in_child(self) -> None:
        """A child is not sampled, unless it is a loader worker, or trains itself."""
        self.sampler = None


_now = _Now()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=guard("pausing the samples of stacks")(_now.before_fork),
        after_in_parent=guard("resuming the samples of stacks")(_now.in_parent),
        after_in_child=_now.in_child,
    )
