"""What each batch was fetched for: training, if a backward followed before the next fetch of the same iterator.

Some loops fetch ahead: batch k + 1 before batch k is used. So batches are matched with what follows them first-in
first-out: an iterator that was asked n times before the first forward is n - 1 batches ahead from then on. Others fetch all
micro-batches of a step at once: there the backwards are counted, as many for each batch. After the last fetch of an iterator
nothing says whose backward it is that follows: such a batch is for what the one before it was for.

Some sum the losses of several batches, and call backward once. There a batch without a backward was training too if it went
forward in training mode with gradients, and most backwards of its iterator come after such a batch. One that was dropped
now and then, after its forward, is none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.store.probe import FORWARD_GRAD, FORWARD_LOSS, FORWARD_TRAINING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

UNKNOWN, TRAIN, EVALUATE = range(3)
WORDS = ("unknown", "train", "evaluate")
_NEVER = 2**63 - 1
_UNUSED = 1 << 40  # after so many more batches: behind all steps
ITERATOR_SHIFT, LOADER_SHIFT = 28, 44  # a batch key without its number, and without its round
_MODES = FORWARD_TRAINING | FORWARD_GRAD | FORWARD_LOSS  # a loss function is in training mode wherever it is called
_HABIT = 0.5  # more than so many backwards of an iterator are for several batches: then it sums losses


class Waits(NamedTuple):
    """The fetches of one thread in the order of time."""

    key: Ints
    start: Ints
    end: Ints


class Forwards(NamedTuple):
    """The forwards of one thread in the order of time. `key` has their modes; anything below 0: they are not known."""

    start: Ints
    key: Ints

    def among(self, modes: int) -> Ints:
        """The starts of those in exactly these modes."""
        found: Ints = self.start[(self.key & _MODES == modes) & (self.key >= 0)]
        return found


class Purposes(NamedTuple):
    """For each fetch its purpose, and after which fetch its batch was used: itself, or a later one.

    `over`: how many more batches were used before it after that one, the last of its iterator.
    """

    purpose: NDArray[np.uint8]
    used: Ints
    over: Ints


def purposes_of(waits: Waits, forwards: Forwards, backwards: Ints, *, sparse: bool = False) -> Purposes:
    """Judge all fetches. `backwards`: their starts, in order. `sparse`: one backward speaks for an iterator."""
    import numpy as np

    count = len(waits.key)
    if count == 0:
        return Purposes(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    if in_turn(waits, backwards):
        return all_trained(count)
    iterator = waits.key >> ITERATOR_SHIFT
    if np.all(iterator[1:] >= iterator[:-1]):
        return _Fetches(waits).judge(forwards, backwards, sparse=sparse)
    order = np.argsort(iterator, kind="stable")
    fetches = _Fetches(Waits(*(column[order] for column in waits)))
    found = fetches.judge(forwards, backwards, sparse=sparse)
    back = np.argsort(order)
    return Purposes(found.purpose[back], order[found.used][back], found.over[back])


def all_trained(count: int) -> Purposes:
    """So many fetches, each for training, and used before the next."""
    import numpy as np

    return Purposes(np.full(count, TRAIN, np.uint8), np.arange(count), np.broadcast_to(np.int64(0), count))


def in_turn(waits: Waits, backwards: Ints) -> bool:
    """Whether each fetch is followed by one backward, as it mostly is: then nothing need be matched."""
    import numpy as np

    return bool(
        len(backwards) == len(waits.key) and np.all(waits.end <= backwards) and np.all(backwards[:-1] < waits.start[1:])
    )


class _Fetches:
    """Fetches sorted by their iterator. What follows each, until the next one, is its window."""

    def __init__(self, waits: Waits) -> None:
        import numpy as np

        count = len(waits.key)
        iterator = waits.key >> ITERATOR_SHIFT
        last = np.append(iterator[1:] != iterator[:-1], True)
        self._places = np.arange(count)
        self._group = np.cumsum(np.append(False, last[:-1]))
        self._first = np.append(0, self._places[1:][last[:-1]])  # of each iterator
        self._size = np.diff(np.append(self._first, count))
        self._final = (self._first + self._size - 1)[self._group]  # for each fetch, the last one of its iterator
        self._begun = waits.start
        self._low = waits.end
        self._high = np.append(waits.start[1:], 0)
        self._high[last] = _next_of_any(waits.start, waits.start[last])

    def judge(self, forwards: Forwards, backwards: Ints, *, sparse: bool) -> Purposes:
        """Purpose and use of each."""
        import numpy as np

        number = self._number(backwards, slice(None))
        taught: Flags = number > 0
        acted = taught.copy()
        idle = np.flatnonzero(~taught)
        acted[idle] = self._number(forwards.start, idle) > 0
        learning = forwards.among(FORWARD_TRAINING | FORWARD_GRAD)
        if sparse:
            taught = self._any(taught)[self._group]
        elif len(learning):
            taught |= self._summed(backwards, acted, forwards, learning)
        used = self._places + self._ahead(acted)[self._group]
        counted = np.zeros(0, np.int64) if sparse else self._count(used, number, acted, learning)
        purpose = np.where(taught[np.minimum(used, self._final)], TRAIN, EVALUATE)
        late = np.flatnonzero(used >= self._final)
        purpose[late] = self._as_before(purpose, late, acted)
        purpose[counted] = TRAIN
        return Purposes(purpose.astype(np.uint8), np.minimum(used, self._final), np.maximum(used - self._final, 0))

    def _number(self, moments: Ints, windows: Ints | slice) -> Ints:
        """How many of the moments lie in each of some windows."""
        import numpy as np

        found: Ints = np.searchsorted(moments, self._high[windows]) - np.searchsorted(moments, self._low[windows])
        return found

    def _summed(self, backwards: Ints, acted: Flags, forwards: Forwards, learning: Ints) -> Flags:
        """Windows without a backward whose losses are part of the next one. `learning`: the forwards that can be."""
        import numpy as np

        number = self._number(backwards, slice(None))
        taught: Flags = number > 0
        silent = np.flatnonzero(acted & ~taught)
        # A model in evaluation mode, and gradients left on: an evaluation, whatever its loss function is in.
        learns = (self._number(learning, silent) > 0) & (self._number(forwards.among(FORWARD_GRAD), silent) == 0)
        found = np.zeros(len(taught), bool)
        found[silent[learns]] = True
        if not learns.any():
            return found
        done = np.flatnonzero(acted)
        after = done[1:][found[done[:-1]] & (self._group[done[1:]] == self._group[done[:-1]])]
        shared = np.zeros(len(taught), bool)
        shared[after] = (number == 1)[after]
        shared &= self._is_own(backwards, forwards.start)
        telling = taught & ((number == 1) | (self._places < self._final))  # after the last fetch anything may come
        most = _HABIT * np.add.reduceat(telling, self._first, dtype=np.int64)
        found &= (np.add.reduceat(shared, self._first, dtype=np.int64) > most)[self._group]
        return found

    def _is_own(self, backwards: Ints, forwards: Ints) -> Flags:
        """Whether the first backward in each window is for its iterator, as far as can be told.

        It is not if something else was fetched meanwhile. After the last fetch it may be for a batch that was in hand before.
        """
        import numpy as np

        starts, ends, begun = np.sort(self._begun), np.sort(self._low), self._begun[self._first]
        first = np.append(backwards, _NEVER)[np.searchsorted(backwards, self._low)]
        alone = np.searchsorted(starts, first) == np.searchsorted(starts, self._low)
        before = np.searchsorted(ends, begun, side="right") - 1  # the last fetch of any iterator
        used = np.searchsorted(forwards, begun) > np.searchsorted(forwards, ends[np.maximum(before, 0)])
        own: Flags = alone & ((self._places < self._final) | ((before < 0) | used)[self._group])
        return own

    def _any(self, flags: Flags) -> Flags:
        """For each iterator, whether one of its fetches is so."""
        import numpy as np

        found: Flags = np.maximum.reduceat(flags, self._first)
        return found

    def _count(self, used: Ints, backwards: Ints, acted: Flags, learning: Ints) -> Ints:
        """Correct `used` for batches that were fetched several at once, and used one after the other; returns which."""
        import numpy as np

        bursts = np.append(~acted[:-1] & (self._group[1:] == self._group[:-1]), False)
        found = [np.zeros(0, np.int64)]
        for group in np.flatnonzero(np.add.reduceat(bursts, self._first)):
            first, size = self._first[group], self._size[group]
            each = slice(first, first + size)
            known = _one_by_one(backwards[each], acted[each])
            if known is None:
                known = _together(backwards[each], acted[each], self._number(learning, each))
            if known is not None:
                used[each] = first + np.where(known < size, known, _UNUSED)
                found.append(first + np.flatnonzero(known < size))
        return np.concatenate(found)

    def _ahead(self, acted: Flags) -> Ints:
        """By how many batches each iterator is ahead: fetches before anything was done with the first one."""
        import numpy as np

        active = np.where(acted, self._places, len(self._places))
        before = np.minimum.reduceat(active, self._first) - self._first
        found: Ints = np.where(before < self._size, before, 0)
        return found

    def _as_before(self, purpose: Ints, late: Ints, acted: Flags) -> Ints:
        """For batches used after the last fetch of their iterator: the purpose of the last one that is decided."""
        import numpy as np

        early = self._places.copy()
        early[late] = -1
        decided = np.maximum.reduceat(early, self._first)[self._group[late]]
        final = self._final[late]
        over = acted[final] & (self._high[final] < _NEVER)
        alone = np.where(purpose[late] == TRAIN, TRAIN, np.where(over, EVALUATE, UNKNOWN))
        found: Ints = np.where(decided >= 0, purpose[np.maximum(decided, 0)], alone)
        return found


def _one_by_one(backwards: Ints, acted: Flags) -> Ints | None:
    """After which fetch each batch of an iterator was used, by counting; its size: not yet. None: the numbers do not fit."""
    import numpy as np

    size = len(backwards)
    several = np.flatnonzero(acted)
    most = int(np.diff(np.append(-1, several)).max(initial=1))  # fetched at once
    each = max(round(int(backwards.sum()) / size), 1)
    total = np.cumsum(backwards) // each
    if most < 2 or backwards[:-1].max(initial=0) <= each or not 0 <= size - total[-1] <= most:
        return None
    found: Ints = np.maximum(np.searchsorted(total, np.arange(size), side="right"), np.arange(size))
    return found


def _together(backwards: Ints, acted: Flags, learning: Ints) -> Ints | None:
    """The same, where one backward follows all that were fetched at once. As many forwards each say that none was left out."""
    import numpy as np

    ends = np.flatnonzero(acted)
    many = np.diff(np.append(-1, ends))
    alike = len(ends) > 1 and many[0] > 1 and np.all(many == many[0]) and np.all(backwards[ends] == 1)
    if not alike or np.any(learning[ends] == 0) or np.any(learning[ends] % many[0]):
        return None
    found: Ints = np.append(ends, len(backwards))[np.searchsorted(ends, np.arange(len(backwards)))]
    return found


def _next_of_any(starts: Ints, moments: Ints) -> Ints:
    """The next start after each moment."""
    import numpy as np

    ordered = starts if np.all(starts[1:] >= starts[:-1]) else np.sort(starts)
    found: Ints = np.append(ordered, _NEVER)[np.searchsorted(ordered, moments, side="right")]
    return found
