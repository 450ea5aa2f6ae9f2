"""Steps of training: which one the program is at, when one ends, which ones are recorded whole.

The step is part of the context of the process, which all records carry. Who sets it, the most explicit first:
`ai.update(step=)`, `trace_step(step=)`, our count. It is 0 from the first event of training on, and one more after each
`update`; a step that somebody else has set is left alone (the core knows who set it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sonde import ranks
from sonde.events import core
from sonde.guard import guard
from sonde.hooks.torch.status import native
from sonde.store.probe import PROBE, UPDATE, UPDATE_BACKWARD, UPDATE_LATE
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sonde.config import Settings

PAUSE_NS = 4_000_000  # those who want to know of the ends of steps need not be notified more often

phases = core.Span("phases", PROBE)  # never entered: the switch of all spans that are based on it


class _Now:
    """The training of this process."""

    def __init__(self) -> None:
        self.installed = False
        self.patched: frozenset[str] = frozenset()  # the probes that see their calls without an edit
        self.block: list[bool | None] = [None]  # inside of a trace_step, or between two; None: there was none yet
        self.forget()
        self.first = 0
        self.stop: int | None = None
        self.every = 1
        self.ranks: tuple[int, ...] | None = None  # those that were chosen; None: all
        self.exact = False  # somebody wants to know of every end of a step at once
        self.all = True  # every step is recorded whole
        self.none = False  # no step is: this rank was not chosen

    def forget(self) -> None:
        """No training has begun."""
        self.begun = False
        self.manual = True  # no torch optimizer is known, and no trace_step: backward passes say where steps end
        if native is not None:
            native.passes(False)
        self.block[0] = None

    @property
    def explicit(self) -> bool:
        """Does trace_step say where steps end?"""
        return self.block[0] is not None

    def takes(self, step: int) -> bool:
        """Is this step recorded whole?"""
        if self.all or self.none:
            return not self.none
        return step >= self.first and (self.stop is None or step < self.stop) and (step - self.first) % self.every == 0

    def choose(self) -> None:
        """Find out whether this rank was chosen."""
        self.none = self.ranks is not None and (ranks.current().rank or 0) not in self.ranks
        self.all = not self.exact and not self.none and self.first == 0 and self.stop is None and self.every == 1


now = _Now()
_ends = [core.Span(UPDATE, PROBE, key=flags, level=ESSENTIAL) for flags in range(2 * UPDATE_BACKWARD)]
_notifying = guard("notifying a probe of the end of a step")
_begins: list[Callable[[], None]] = []
_updates: list[Callable[[], None]] = []


def install(settings: Settings) -> Callable[[], None]:
    """Choose steps by these settings from now on."""
    now.forget()
    now.installed = True
    now.first, now.stop = settings.steps or (0, None)
    now.every = settings.every
    now.ranks = settings.ranks
    now.choose()
    phases.on = now.takes(0)
    return _leave


def know_rank() -> None:
    """The rank of this process was learned: from now on it is recorded whole, or not, by that."""
    now.choose()
    phases.on = now.takes(core.get_context()[0] or 0)
    _use_fast_paths(now.begun and now.all)


def exactly(on: bool) -> None:
    """Notify of every end of a step at once, or no longer; without it, perhaps not of each."""
    now.exact = on
    now.choose()
    _use_fast_paths(now.begun and now.all)


def leave_manual() -> None:
    """An optimizer or the program itself says where steps end."""
    if now.manual:
        now.manual = False
        if native is not None:
            native.passes(True)


def _leave() -> None:
    core.set_context(-1, -1)  # the next recording is about another training, even if this one has seen none
    _use_fast_paths(False)
    now.installed = now.exact = False
    now.patched = frozenset()
    now.forget()


def at_begin(callback: Callable[[], None]) -> Callable[[], None]:
    """Call when training begins: at its first event, or now if it has begun. Returns what ends the wait."""
    if now.begun:
        _call(callback)
        return lambda: None
    _begins.append(callback)
    return lambda: _remove(_begins, callback)


def at_update(callback: Callable[[], None]) -> Callable[[], None]:
    """Call when a step has ended, though perhaps not more often than every few milliseconds. Returns what ends that."""
    _updates.append(callback)
    return lambda: _remove(_updates, callback)


def begin() -> None:
    """An event of training is about to be recorded: from the first one on there is a step. Cheap: `now.begun` says so."""
    if now.begun or not now.installed:
        return
    now.begun = True
    if core.get_context()[0] is None:
        core.count_steps(0)
    phases.on = now.takes(core.get_context()[0] or 0)
    _use_fast_paths(now.all)
    while _begins:
        _call(_begins.pop(0))


def end(flags: int, when: int | None = None) -> None:
    """The step that the program is at has ended, now or at a time of the monotonic clock: go on to the next one."""
    if not now.begun:
        begin()
    core.advance(_ends[flags], when)
    if not now.all:
        phases.on = now.takes(core.get_context()[0] or 0)
    notify()


def end_late(flags: int, when: int) -> None:
    """A step has ended at this time of the monotonic clock, as is known only now that the next one has ended too."""
    core.advance(_ends[flags | UPDATE_LATE], when)


def notify() -> None:
    """Notify who wants to know it that a step has ended."""
    waiting: Iterator[Callable[[], None]] | None = iter(tuple(_updates))
    while waiting is not None:
        with _notifying:  # one that fails is left out, and the next ones are notified
            for callback in waiting:
                callback()
            waiting = None


def enter(step: int | None) -> None:
    """A step begins whose number is known, or else is the next one."""
    if not now.begun:
        begin()
    if step is not None:
        core.count_steps(step)
    if not now.all:
        phases.on = now.takes(core.get_context()[0] or 0)


def _use_fast_paths(on: bool) -> None:
    """Let the probes take their fast paths, which are for training that goes on and is recorded whole."""
    if native is not None:
        native.ready(on)


def _quick_end(flags: int) -> Callable[[], Any]:
    """What does the same as `end(flags)` where all steps are recorded whole, and notifies less often; if C was built."""
    if native is None:
        return lambda: end(flags)
    quick: Callable[[], Any] = native.ended(notify, advance=core.advance, span=_ends[flags], pause=PAUSE_NS)
    return quick


quick_end = [_quick_end(flags) for flags in range(UPDATE_LATE)]


@guard("notifying a probe of the start of training")
def _call(callback: Callable[[], None]) -> None:
    callback()


def _remove(callbacks: list[Callable[..., None]], callback: Callable[..., None]) -> None:
    if callback in callbacks:
        callbacks.remove(callback)
