"""What a device has done in the phases of a step: pairs of events on its stream, read when they have passed, never waited for.

A counter `device.<phase>` holds the nanoseconds between the two events of a phase, with the step that it belongs to. Phases
that wait for the host are in it as the device sees them: the time of its stream from the first event to the second. Where more
pairs are under way than the pool has, phases are left out and counted. The phases are followed by subscribers, which is not the
quickest way: some µs for each. There was no device where this was written: it was tried with a stand-in only. The memory of
the device is looked at too (`allocator`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.events import core
from sonde.hooks.torch.backward import backward
from sonde.hooks.torch.module import module_call
from sonde.hooks.torch.optimizer import optimizer_step
from sonde.probes import step
from sonde.probes.disable import probe_guard
from sonde.probes.process import allocator
from sonde.store.probe import BACKWARD, DEVICE, FORWARD, OPTIMIZER, PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sonde.config import Settings

MOST = 256  # pairs under way; more than that are not ordered
DOING = "timing a device"


class _Pair(NamedTuple):
    """A phase on its way through the stream."""

    phase: str
    step: int | None
    begin: Any
    end: Any


class _DeviceStream:
    """The pairs of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.under_way: list[_Pair] = []
        self.spare: list[Any] = []  # events to be used again
        self.left_out = 0
        self.step: int | None = None  # what the last phase worked for; None: it is not recorded
        self.leave: list[Callable[[], None]] = []


_stream = _DeviceStream()


def install(_settings: Settings) -> Callable[[], None]:
    """Be ready to time a device, from the first step on that finds one at work."""
    _stream.forget()
    _stream.leave.append(step.at_update(_look))
    return _leave


def _leave() -> None:
    while _stream.leave:
        _stream.leave.pop()()
    _collect()
    if _stream.left_out:
        core.counter(f"{DEVICE}left_out", _stream.left_out, PROBE)
    _stream.forget()


def _give_up() -> None:
    _stream.under_way.clear()
    _leave()


_timing = probe_guard("device", DOING, _give_up)


@_timing
def _look() -> None:
    """A step has ended: read what has passed; where a device has come into use, follow the phases from now on."""
    if len(_stream.leave) > 1:
        _collect()
        allocator.look(_stream.step)
        _stream.step = None
    elif cuda() is not None:
        allocator.follow()
        allocator.look(None)  # what there was before belongs to no step
        _stream.leave.append(allocator.leave)
        for point, phase in ((module_call, FORWARD), (backward, BACKWARD), (optimizer_step, OPTIMIZER)):
            _stream.leave.append(point.subscribe(_TimedPhase(phase)))


def cuda() -> Any:
    """`torch.cuda`, if the program uses it; asking starts nothing."""
    found = getattr(sys.modules.get("torch"), "cuda", None)
    return found if found is not None and found.is_initialized() else None


class _TimedPhase:
    """Subscribes to each forward pass, backward pass or update."""

    def __init__(self, phase: str) -> None:
        self._phase = phase

    @_timing
    def before(self, _args: Any, _kwargs: Any) -> Any:
        _stream.step = core.get_context()[0] if step.phases.on else None
        if not step.phases.on:
            return None
        if len(_stream.under_way) >= MOST:
            _stream.left_out += 1
            return None
        return _stream.step, _recorded()

    @_timing
    def after(self, begun: Any, _result: Any, error: BaseException | None) -> None:
        if begun is None:
            return
        at, begin = begun
        if error is not None:
            _stream.spare.append(begin)
            return
        _stream.under_way.append(_Pair(self._phase, at, begin, _recorded()))


def _recorded() -> Any:
    event = _stream.spare.pop() if _stream.spare else cuda().Event(enable_timing=True)
    event.record()
    return event


def _collect() -> None:
    """Write the pairs that have passed; the first that has not stands for all behind it."""
    pairs = _stream.under_way
    while pairs and pairs[0].end.query():
        pair = pairs.pop(0)
        core.counter(f"{DEVICE}{pair.phase}", pair.begin.elapsed_time(pair.end) * 1e6, PROBE, step=pair.step)
        _stream.spare += [pair.begin, pair.end]
