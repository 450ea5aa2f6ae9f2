"""Whose loss it is: batches are matched with the losses that follow them, first in, first out. The same as `Latest` in `native/fingerprint.c`.

Mostly a loss is that of the newest batch. Some loops fetch ahead, and some fetch all micro-batches of a step at once: so the first
loss of an iteration that has delivered several batches before it is asked about (`ask`), and from then on the iteration is as
many batches ahead as it was then. A batch that is left out later changes nothing. What does not fit is nobody's loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.store.probe import HIGHEST_NUMBER, batch_key

if TYPE_CHECKING:
    from collections.abc import Callable

    # Given the key of the newest batch, and how many have no loss yet: how many before the newest is the one that the program
    # uses now; None: that cannot be told.
    Ask = Callable[[int, int], int | None]
    # The key of a batch, or None for the newest; its loss, or that it has none.
    Owned = list[tuple[int | None, float | None]]

MOST = 64  # losses that are kept, and batches that may wait for one
ITERATIONS = 4  # that are known at a time
NEW, LOST = -1, -2
NUMBER_BITS = HIGHEST_NUMBER.bit_length()  # of a key; the rest of it is the iteration
ROUND_BITS = batch_key(1, 0, 0).bit_length() - 1 - NUMBER_BITS  # of that; the rest is the loader


class _Iteration:
    """The batches of one iteration."""

    def __init__(self) -> None:
        self.number = -1
        self.moment = 0  # when its newest batch came, counted
        self.renew(-1)

    def renew(self, newest: int) -> None:
        self.newest = newest  # its key
        self.unused = 0  # batches without a loss; of those that wait for one the newest is the last
        self.ahead = NEW  # how many are still unused when a loss has come; LOST: that cannot be known
        self.burst = False  # several at once

    def owes(self) -> bool:
        """Has it delivered batches that are used later? Then a loss may be of one of them, though others came since."""
        return self.unused > 0 and (self.ahead > 0 or self.burst)


class Losses:
    """The losses since the newest batch came."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._values: list[float] = []
        self._count = 0
        self._known = [_Iteration() for _ in range(ITERATIONS)]
        self._moment = 0
        self._now: _Iteration | None = None

    def came(self, key: int | None) -> None:
        """A batch was delivered."""
        if key is None:
            self._now = None
            return
        number = key >> NUMBER_BITS
        now = min(self._known, key=lambda one: (one.number != number, one.moment))
        if now.number != number or key != now.newest + 1:
            now.renew(key)
        self._moment += 1
        now.number, now.newest, now.moment = number, key, self._moment
        now.unused = min(now.unused + 1, MOST)
        self._now = now

    def note(self, value: float) -> None:
        """A loss goes into its backward pass."""
        now = self._now
        if now is not None and not self._count and now.ahead == NEW:
            self._begin(now)
        self._values = [*self._values[1 - MOST :], value]
        self._count += 1

    def _begin(self, now: _Iteration) -> None:
        """The first loss since the iteration began."""
        if any(one.owes() and (one.number ^ now.number) >> ROUND_BITS for one in self._known):
            now.ahead = LOST
        elif now.unused > 1:
            back = self._ask(now.newest, now.unused)
            if back is None or not 0 <= back < now.unused:
                now.ahead = LOST
            else:
                now.unused = back + 1

    def settled(self, final: bool) -> Owned:
        """Whose the losses are that have come since the newest batch; `final`: another batch comes now, and they are forgotten."""
        count, values, now = self._count, self._values, self._now
        if final:
            self._count, self._values = 0, []
        if not count:
            return []
        if now is None:
            return [(None, values[-1])]
        before = now.unused, now.ahead, now.burst
        owned = _matched(now, values, count)
        if not final:
            now.unused, now.ahead, now.burst = before
        return owned


def _matched(now: _Iteration, values: list[float], count: int) -> Owned:
    if now.ahead == LOST:
        return []
    if now.ahead == NEW:
        now.burst = now.unused > 1 and count > 1
        now.ahead = max(now.unused - count, 0)
    if not now.burst and now.ahead == 0:
        now.unused = 0
        return [(now.newest, values[-1])]
    waiting = min(now.unused, count + now.ahead) if now.burst else now.ahead + 1  # older ones were left out
    if count > waiting:  # several losses for a batch
        now.ahead = LOST
        return [(now.newest - back, None) for back in range(min(MOST, now.newest + 1))]
    now.unused = waiting - count
    first = now.newest - waiting + 1 + count - len(values)
    return [(first + place, value) for place, value in enumerate(values)]
