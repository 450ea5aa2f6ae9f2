"""Which threads there are: each gets a number, and is written with its name when it is first seen."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING

from sonde.events import core
from sonde.store.probe import SAMPLE, SAMPLE_THREAD
from sonde.store.record import ESSENTIAL

if TYPE_CHECKING:
    from types import FrameType

MOST = 1000  # threads that one sampling distinguishes; further ones are not sampled

_numbers = count(1)  # of this process: sampling may start more than once in a recording


class SampledThread:
    """One thread: its number, when and at which node it was seen last, since when it has been there, and what is not written of that."""

    __slots__ = ("_place", "node", "number", "seen", "since", "spent")

    def __init__(self, number: int, now: int) -> None:
        self.number = number
        self.node = 0
        self.spent = 0
        self.seen = self.since = now
        self._place: tuple[int, int, int, int] | None = None

    def waits(self, frame: FrameType) -> bool:
        """Is it still where it was? By the addresses of its innermost frames, which live on while it waits in them."""
        back = frame.f_back
        place = (id(frame), frame.f_lasti, id(back), 0 if back is None else back.f_lasti)
        waits, self._place = place == self._place, place
        return waits


class Threads:
    """The threads of this process that are alive, by their idents."""

    def __init__(self) -> None:
        self.alive: dict[int, SampledThread] = {}
        self._count = 0

    def restart(self, now: int) -> None:
        """Nobody has looked until now."""
        for one in self.alive.values():
            one.seen = now

    def get(self, ident: int, now: int) -> SampledThread | None:
        """A thread; None: there are too many. The time of a new one begins now."""
        found = self.alive.get(ident)
        if found is None and self._count < MOST:
            self._count += 1
            found = self.alive[ident] = SampledThread(next(_numbers), now)
            named = next((one for one in threading.enumerate() if one.ident == ident), None)
            facts = {"tid": None if named is None else named.native_id, "name": None if named is None else named.name}
            core.mark(SAMPLE_THREAD, SAMPLE, found.number, facts, ESSENTIAL)
        return found
