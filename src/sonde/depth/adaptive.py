"""The setting `adaptive`: after something unusual, the next steps are recorded in depth.

Odd is a step that takes many times the median one, memory that grows and grows, and a loss that jumps or is not finite. It is seen
where the program has ended a step: no thread, and no look at a device.
"""

from __future__ import annotations

import os
from collections import deque
from statistics import median
from time import monotonic_ns
from typing import TYPE_CHECKING

from sonde import system
from sonde.depth import ondemand
from sonde.events import core
from sonde.probes import step
from sonde.probes.disable import probe_guard
from sonde.probes.phases import loss
from sonde.probes.process import sampler
from sonde.store.request import LAYERS, STACKS, DeepRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

DOING = "looking for unusual steps"
TIMES = 4.0  # the median step: more is an outlier
LEAST_NS = 20_000_000  # and so much longer
LEAST_STEPS = 20  # before anything is odd
WINDOW = 64  # steps, and losses
LOSS_TIMES = 4.0
GROWN_SHARE = 0.2  # of the memory that there was at first, without a fall in between
GROWN_BYTES = 256 << 20
PAUSE_NS = 60 * 10**9  # between two
MOST = 10  # of a process
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Odd:
    """Judges steps, losses and memory. Each method returns why something is odd, or None."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._memory: list[int] = []

    def step(self, ns: float) -> str | None:
        """A step has taken so long."""
        known = list(self._steps)
        self._steps.append(ns)
        if len(known) < LEAST_STEPS:
            return None
        middle = median(known)
        return "an outlier" if ns > max(TIMES * middle, middle + LEAST_NS) else None

    def loss(self, value: float) -> str | None:
        """A loss is so large."""
        if value - value != 0:
            return "a non-finite loss"
        known = [abs(one) for one in self._losses]
        self._losses.append(value)
        if len(known) < LEAST_STEPS:
            return None
        return "a loss spike" if abs(value) > LOSS_TIMES * max(*known[-LEAST_STEPS:], median(known)) else None

    def memory(self, size: int) -> str | None:
        """The process has so many bytes in memory."""
        if self._memory and size < self._memory[-1]:
            self._memory = []
        self._memory = [*self._memory[:1], size]
        first = self._memory[0]
        if size - first < max(GROWN_BYTES, GROWN_SHARE * first):
            return None
        self._memory = [size]
        return "growing memory"


class AdaptiveWatch:
    """Watches this process, and asks for depth at most so often."""

    def __init__(self, settings: Settings, clock: Callable[[], int] = monotonic_ns) -> None:
        self._settings = settings
        self._clock = clock
        self._odd = Odd()
        self._last: tuple[int, int] | None = None  # step and time
        self._asked: int | None = None
        self._times = 0
        self._why: str | None = None
        self._leave: list[Callable[[], None]] = []
        self._safe = probe_guard("adaptive", DOING, self.end)

    def start(self) -> Callable[[], None]:
        """Begin; the returned function ends it."""
        self._leave = [step.at_update(self.ended), loss.at_loss(self.lost), sampler.at_look(self.looked)]
        return self.end

    def end(self) -> None:
        """Watch no more."""
        while self._leave:
            self._leave.pop()()

    def ended(self) -> None:
        """One or more steps have ended."""
        with self._safe:
            number, now = core.get_context()[0] or 0, self._clock()
            last, self._last = self._last, (number, now)
            if last is not None and number > last[0] and not ondemand.recording():  # these are slower
                self._note(self._odd.step((now - last[1]) / (number - last[0])))
            if self._why is not None:
                why, self._why = self._why, None
                self._ask(why, now)

    def lost(self, value: float, _step: int | None) -> None:
        """A loss is known."""
        with self._safe:
            self._note(self._odd.loss(value))

    def looked(self) -> None:
        """Half a second has passed."""
        with self._safe:
            text = system.text("/proc/self/statm")
            if text is not None and step.now.begun:
                self._note(self._odd.memory(int(text.split()[1]) * PAGE))

    def _note(self, why: str | None) -> None:
        self._why = why or self._why

    def _ask(self, why: str, now: int) -> None:
        if self._times >= MOST or (self._asked is not None and now - self._asked < PAUSE_NS):
            return
        request = DeepRequest(
            f"adaptive-{os.getpid()}-{self._times}", self._settings.adaptive, (LAYERS, STACKS), why=f"adaptive: {why}"
        )
        if ondemand.begin(request, self._settings):
            self._asked, self._times = now, self._times + 1


def watch(settings: Settings) -> Callable[[], None]:
    """Watch from now on; the returned function ends it."""
    return AdaptiveWatch(settings).start()
