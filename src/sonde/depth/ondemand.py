"""Depth on demand: records some steps of a running training in depth, then restores the former state.

`sonde deepen RUN` puts a request into the run folder. Each process that trains looks for it twice a second, at the end of a step: one
`stat`. The setting `adaptive` asks for the same when a step is an outlier, memory grows or a loss jumps. Each part is switched on and off
between two steps, by the same means as at the start; one that is on already is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde import ranks
from sonde.blackbox import box
from sonde.events import core, recorder
from sonde.guard import guard
from sonde.probes import at_uninstall, profile, step
from sonde.probes.disable import switch_off
from sonde.probes.layers import record as layers
from sonde.probes.learning.sample import Learning
from sonde.probes.sampling import sample
from sonde.store import request as requests
from sonde.store.probe import DEEPEN
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings
    from sonde.store.request import DeepRequest

DOING = "recording steps in depth"
HZ = 50
ON_ALREADY = "on already"


class _Now:
    """What this process records deep."""

    deepening: Deepening | None = None


def answer(settings: Settings) -> None:
    """There is a new request: do what it says, unless steps are recorded deep now."""
    serving = recorder.serving()
    request = None if serving is None else requests.asked_deep(serving.run)
    if request is not None:
        begin(request, settings)


def begin(request: DeepRequest, settings: Settings) -> bool:
    """Record steps deep from the next step on, or from that which the request names. False: others are recorded now."""
    if _Now.deepening is not None:
        return False
    _Now.deepening = Deepening(request, settings)
    _Now.deepening.watch()
    return True


def recording() -> bool:
    """Are steps recorded deep now?"""
    return _Now.deepening is not None


class Deepening:
    """The steps of one request."""

    def __init__(self, request: DeepRequest, settings: Settings) -> None:
        self._request = request
        self._settings = settings
        self._first = -1
        self._parts: list[str] = []
        self._refused: dict[str, str] = {}
        self._ends: list[Callable[[], None]] = []
        self._leave: Callable[[], None] = lambda: None
        self._safe = guard(DOING, then=self._give_up)

    def watch(self) -> None:
        """Follow the steps."""
        step.exactly(True)
        self._leave = step.at_update(self._look)
        at_uninstall(self.end)
        self._report(None)

    def end(self) -> None:
        """Go back to what was recorded before."""
        if _Now.deepening is not self:
            return
        with self._safe:
            _Now.deepening = None
            self._leave()
            number = core.get_context()[0] or 0
            while self._ends:
                self._ends.pop()()
            step.exactly(False)
            self._report(max(number - 1, self._first))

    def _give_up(self) -> None:
        _Now.deepening = None
        self._leave()
        while self._ends:
            with guard(DOING):
                self._ends.pop()()
        step.exactly(False)
        switch_off("deepen", DOING)

    def _look(self) -> None:
        """A step is about to begin."""
        number = core.get_context()[0] or 0
        if self._first >= 0:
            if number >= self._first + self._request.steps:
                self.end()
        elif self._request.first is None or number >= self._request.first:
            with self._safe:
                self._start(number)

    def _start(self, number: int) -> None:
        self._first = number
        switches = {
            requests.LAYERS: _layers,
            requests.VALUES: self._values,
            requests.LEARNING: self._learning,
            requests.STACKS: _stacks,
            requests.PROFILE: self._profile,
        }
        for part in self._request.parts:
            ends = switches[part]()
            if ends is None:
                self._refused[part] = ON_ALREADY
            else:
                self._parts.append(part)
                self._ends.append(ends)
        self._report(None)

    def _values(self) -> Callable[[], None] | None:
        if self._settings.blackbox or not self._request.values:
            return None
        box.start(self._request.values)

        def end() -> None:
            box.trigger("demand")
            box.stop()

        return end

    def _learning(self) -> Callable[[], None] | None:
        if self._settings.learning:
            return None
        return Learning(1, frozenset(self._settings.exclude)).start()

    def _profile(self) -> Callable[[], None] | None:
        if self._settings.profile_step is not None:
            return None
        own = (ranks.current().rank or 0,)
        return profile.ProfiledSteps(self._first, self._first + self._request.steps, own).watch()

    def _report(self, last: int | None) -> None:
        """Say in the run what is recorded deep, and since when, or until when it was."""
        facts = {
            "id": self._request.id,
            "why": self._request.why,
            "state": requests.RECORDING if last is None else requests.DONE,
            "first": self._first if self._first >= 0 else self._request.first,
            "last": last,
            "steps": self._request.steps,
            "parts": self._parts,
            "refused": self._refused,
        }
        serving = recorder.serving()
        if serving is not None:
            serving.add(**{requests.ANSWER: facts})
        if self._first >= 0:
            core.mark(DEEPEN, DEEPEN, self._first, facts, ESSENTIAL)


def _layers() -> Callable[[], None] | None:
    return layers.deepen()


def _stacks() -> Callable[[], None] | None:
    if sample.running():
        return None
    sample.begin(HZ)
    return sample.end
