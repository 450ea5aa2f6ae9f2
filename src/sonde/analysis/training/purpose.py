"""What each batch was fetched for: training, if a backward followed before the next fetch of the same iterator.

Some loops fetch ahead: batch k + 1 before batch k is used. So batches are matched with what follows them first-in
first-out: an iterator that was asked n times before the first forward is n - 1 batches ahead from then on. Others fetch all
micro-batches of a step at once: there the backwards are counted, as many for each batch; or, where one process fetches for all of
them and gives each its part, as many batches for each backward. After the last fetch of an iterator
nothing says whose backward it is that follows: such a batch is for what the one before it was for. If there was none before, it was
evaluation if the model went forward without training and gradients, but for a teacher before a backward that no batch in hand
waits for.

A batch in hand when the training ends was used for nothing. A batch of an iterator that trains, with which nothing was done, or that went forward as in training and had no backward, was left
out by the program: nobody knows what it was for. So are the first ones where training goes on from the middle of an epoch: an iterator
that fetched ahead has as many more backwards after its last fetch.

Some sum the losses of several batches, and call backward once. There a batch without a backward was training too if it went
forward in training mode with gradients, and most backwards of its iterator come after such a batch. One that was dropped
now and then, after its forward, is none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.store.probe import FORWARD_GRAD, FORWARD_LOSS, FORWARD_TRAINING, iteration_of, loader_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

UNKNOWN, TRAIN, EVALUATE = range(3)
WORDS = ("unknown", "train", "evaluate")
NEVER = 2**63 - 1
_USUALLY = 2  # batches that a loop is ahead, at most
_SELDOM = 0.25  # fewer than so many batches of an iterator, beside its first ones, are left out here and there
_FEWEST = 3  # batches in a row that were used one by one, after some that were not: then these were left out, not fetched ahead
_MODES = FORWARD_TRAINING | FORWARD_GRAD | FORWARD_LOSS  # a loss function is in training mode wherever it is called
_HABIT = 0.5  # more than so many backwards of an iterator are for several batches: then it sums losses


class Waits(NamedTuple):
    """The fetches of one thread in the order of time."""

    key: Ints
    start: Ints
    end: Ints


class Rounds(NamedTuple):
    """When iterators began and ended, with the key of their first batch. One that was broken off has no end."""

    key: Ints
    start: Ints


class Forwards(NamedTuple):
    """The forwards of one thread in the order of time. `key` has their modes; anything below 0: they are not known."""

    start: Ints
    key: Ints

    def among(self, modes: int) -> Ints:
        """The starts of those in exactly these modes."""
        found: Ints = self.start[(self.key & _MODES == modes) & (self.key >= 0)]
        return found


class Purposes(NamedTuple):
    """For each fetch its purpose, and when its batch was used.

    That is the start of its backward; if that is not known, the start of the fetch after which it was used: its own, or a later one.
    NEVER: it was not used, or not yet. `part`: it is of one micro-batch with the batch before it.
    """

    purpose: NDArray[np.uint8]
    moment: Ints
    part: Flags


def purposes_of(
    waits: Waits, forwards: Forwards, backwards: Ints, rounds: Rounds | None = None, *, sparse: bool = False
) -> Purposes:
    """Judge all fetches. `backwards`: their starts, in order. `sparse`: one backward speaks for an iterator."""
    import numpy as np

    count = len(waits.key)
    if count == 0:
        return all_trained(backwards[:0])
    if in_turn(waits, backwards) and not sparse:
        return all_trained(backwards)
    iterator = iteration_of(waits.key)
    if np.all(iterator[1:] >= iterator[:-1]):
        return _Fetches(waits, rounds).judge(forwards, backwards, sparse=sparse)
    order = np.argsort(iterator, kind="stable")
    fetches = _Fetches(Waits(*(column[order] for column in waits)), rounds)
    found = fetches.judge(forwards, backwards, sparse=sparse)
    back = np.argsort(order)
    return Purposes(found.purpose[back], found.moment[back], found.part[back])


def all_trained(backwards: Ints) -> Purposes:
    """Each fetch was for training, and used in one of these."""
    import numpy as np

    return Purposes(np.full(len(backwards), TRAIN, np.uint8), backwards, np.broadcast_to(False, len(backwards)))


def in_turn(waits: Waits, backwards: Ints) -> bool:
    """Whether each fetch is followed by one backward, as it mostly is: then nothing need be matched."""
    import numpy as np

    return bool(
        len(backwards) == len(waits.key) and np.all(waits.end <= backwards) and np.all(backwards[:-1] < waits.start[1:])
    )


class _Hints(NamedTuple):
    """For each iterator: does what follows its last fetch look like an evaluation, and like training?"""

    evaluates: Flags
    learns: Flags


class _Fetches:
    """Fetches sorted by their iterator. What follows each, until the next one, is its window."""

    def __init__(self, waits: Waits, rounds: Rounds | None = None) -> None:
        import numpy as np

        count = len(waits.key)
        iterator = iteration_of(waits.key)
        last = np.append(iterator[1:] != iterator[:-1], True)
        self._places = np.arange(count)
        self._group = np.cumsum(np.append(False, last[:-1]))
        self._first = np.append(0, self._places[1:][last[:-1]])  # of each iterator
        self._size = np.diff(np.append(self._first, count))
        self._final = (self._first + self._size - 1)[self._group]  # for each fetch, the last one of its iterator
        self._begun = waits.start
        self._loader = loader_of(waits.key)[self._first]
        following = np.append(self._loader[1:] == self._loader[:-1], False)
        again = np.append(waits.start[self._first[1:]], NEVER)
        self._until = np.where(following, again, NEVER)  # for each iterator, when the next one of its loader began
        self._low = waits.end
        self._high = np.append(waits.start[1:], 0)
        self._high[last] = _next_of_any(waits.start, waits.start[last])
        over = _last_of(iterator[last], rounds) >= self._low[last]
        self._whole = over | (self._until < NEVER)  # for each iterator, whether all of it was asked for

    def judge(self, forwards: Forwards, backwards: Ints, *, sparse: bool) -> Purposes:
        """Purpose and use of each."""
        number = self._number(backwards, slice(None))
        acted = self._acted(number, forwards)
        ahead = self._ahead(acted)
        ahead[self._left_out(acted, number, backwards)] = 0
        used = self._places + ahead[self._group]
        if sparse:
            return self._by_updates(used, number, acted, forwards, backwards)
        return self._by_backwards(used, number, acted, forwards, backwards)

    def _by_updates(self, used: Ints, number: Ints, acted: Flags, forwards: Forwards, updates: Ints) -> Purposes:
        """One update of an iterator says that all of it was for training."""
        import numpy as np

        verdict = np.where(self._any(number > 0)[self._group], TRAIN, EVALUATE)
        own = self._is_own(updates, forwards.start)
        purpose = self._purposes(verdict, used, acted, self._hints(forwards, own, number))
        moment = self._moments(used, number, acted, updates, sparse=True)
        return self._told(purpose, moment, np.zeros(len(used), bool), used)

    def _by_backwards(self, used: Ints, number: Ints, acted: Flags, forwards: Forwards, backwards: Ints) -> Purposes:
        """Each backward is for a batch of its own, or for some."""
        import numpy as np

        learning = forwards.among(FORWARD_TRAINING | FORWARD_GRAD)
        moment = self._moments(used, number, acted, backwards, sparse=False)
        counted, part = self._count(moment, number, acted, learning, backwards)
        own = self._is_own(backwards, forwards.start) & ~self._is_taken(moment, number, backwards)
        taught = number > 0
        if len(learning):
            taught |= self._summed(number, acted, own, forwards, learning)
        verdict = np.where(taught, TRAIN, EVALUATE)
        verdict[self._dropped(taught, acted, forwards)] = UNKNOWN
        purpose = self._purposes(verdict, used, acted, self._hints(forwards, own, number))
        purpose[counted] = TRAIN
        last = (used == self._final) & (self._places == self._final) & (purpose == TRAIN)
        unused = (purpose == TRAIN) & (used > self._final) & (moment == NEVER) & ~counted
        purpose[unused] = UNKNOWN
        purpose[self._never_used(last, backwards)] = UNKNOWN
        purpose[self._passed_by(last & ~acted, purpose, backwards)] = UNKNOWN
        moment[self._of_others(moment, purpose)] = NEVER
        told = self._told(purpose, moment, part, used)
        told.moment[unused] = NEVER
        return told

    def _told(self, purpose: Ints, moment: Ints, part: Flags, used: Ints) -> Purposes:
        """With `moment`, which is that of training, for all."""
        import numpy as np

        itself = purpose != TRAIN
        moment[itself] = self._begun[np.minimum(used, self._final)][itself]
        return Purposes(purpose.astype(np.uint8), moment, part)

    def _purposes(self, verdict: Ints, used: Ints, acted: Flags, hints: _Hints) -> Ints:
        """Of batches: what the window is for in which each was used."""
        import numpy as np

        purpose: Ints = verdict[np.minimum(used, self._final)]
        late = np.flatnonzero(used >= self._final)
        purpose[late] = self._as_before(purpose, late, acted, hints)
        return purpose

    def _acted(self, number: Ints, forwards: Forwards) -> Flags:
        """Windows in which something was done."""
        import numpy as np

        found: Flags = number > 0
        idle = np.flatnonzero(~found)
        found[idle] = self._number(forwards.start, idle) > 0
        return found

    def _each(self, number: Ints, acted: Flags) -> Ints:
        """For each iterator, about how many backwards a batch of it has."""
        import numpy as np

        inner = acted & (self._places < self._final)
        batches = np.add.reduceat(inner, self._first, dtype=np.int64)
        passes = np.add.reduceat(np.where(inner, number, 0), self._first)
        total = np.add.reduceat(number, self._first)
        found: Ints = np.rint(np.where(batches > 0, passes / np.maximum(batches, 1), total / self._size)).astype(
            np.int64
        )
        return np.maximum(found, 1)

    def _moments(self, used: Ints, number: Ints, acted: Flags, backwards: Ints, *, sparse: bool) -> Ints:
        """When each batch was used, if it was for training."""
        import numpy as np

        over = np.maximum(used - self._final, 0)
        window = np.minimum(used, self._final)
        first = np.searchsorted(backwards, self._low[window])
        moment = self._begun[window]
        if sparse:  # the pace at which updates take batches
            pace = np.minimum(np.add.reduceat(number, self._first) / self._size, 1.0)[self._group]
            place = first + (over * pace).astype(np.int64)
        else:
            place = first + over * self._each(number, acted)[self._group]
        found = np.append(backwards, NEVER)[np.minimum(place, len(backwards))]
        known = found < np.where(over > 0, NEVER, self._high[window])
        if sparse:
            return np.where(over > 0, np.where(known, found - 1, NEVER), moment)
        return np.where(known, found, np.where(over > 0, NEVER, moment))

    def _number(self, moments: Ints, windows: Ints | slice) -> Ints:
        """How many of the moments lie in each of some windows."""
        import numpy as np

        found: Ints = np.searchsorted(moments, self._high[windows]) - np.searchsorted(moments, self._low[windows])
        return found

    def _summed(self, number: Ints, acted: Flags, own: Flags, forwards: Forwards, learning: Ints) -> Flags:
        """Windows without a backward whose losses are part of the next one. `learning`: the forwards that can be."""
        import numpy as np

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
        shared &= own
        telling = taught & ((number == 1) | (self._places < self._final))  # after the last fetch anything may come
        most = _HABIT * np.add.reduceat(telling, self._first, dtype=np.int64)
        found &= (np.add.reduceat(shared, self._first, dtype=np.int64) > most)[self._group]
        return found

    def _is_own(self, backwards: Ints, forwards: Ints) -> Flags:
        """Whether the first backward in each window is for its iterator, as far as can be told.

        It is not if something else was fetched meanwhile. After the last fetch it may be for a batch that was in hand before, or for
        none, in a training that began without a fetch.
        """
        import numpy as np

        starts, ends, begun = np.sort(self._begun), np.sort(self._low), self._begun[self._first]
        first = np.append(backwards, NEVER)[np.searchsorted(backwards, self._low)]
        alone = np.searchsorted(starts, first) == np.searchsorted(starts, self._low)
        before = np.searchsorted(ends, begun, side="right") - 1  # the last fetch of any iterator
        used = np.searchsorted(forwards, begun) > np.searchsorted(forwards, ends[np.maximum(before, 0)])
        fed = not np.any(backwards[:1] < starts[0])
        own: Flags = alone & ((self._places < self._final) | (fed & ((before < 0) | used))[self._group])
        return own

    def _is_taken(self, moment: Ints, number: Ints, backwards: Ints) -> Flags:
        """Last windows whose first backward is for a batch that another iterator had fetched ahead before."""
        import numpy as np

        late = np.flatnonzero(
            (moment >= self._high[self._final]) & (moment < NEVER) & self._any(number > 0)[self._group]
        )
        found = np.zeros(len(moment), bool)
        if len(late):
            late = late[np.lexsort((self._begun[late], moment[late]))]
            final = self._final[self._first]
            first = np.append(backwards, NEVER)[np.searchsorted(backwards, self._low[final])]
            who = late[np.minimum(np.searchsorted(moment[late], first), len(late) - 1)]
            found[final] = (moment[who] == first) & (self._begun[who] < self._begun[self._first])
        return found

    def _any(self, flags: Flags) -> Flags:
        """For each iterator, whether one of its fetches is so."""
        import numpy as np

        found: Flags = np.maximum.reduceat(flags, self._first)
        return found

    def _count(self, moment: Ints, number: Ints, acted: Flags, learning: Ints, backwards: Ints) -> tuple[Flags, Flags]:
        """Correct `moment` for iterators that fetched several at once; returns which, and what is part of a micro-batch."""
        import numpy as np

        bursts = np.append(~acted[:-1] & (self._group[1:] == self._group[:-1]), False)
        found, part = np.zeros((2, len(moment)), bool)
        for group in np.flatnonzero(np.add.reduceat(bursts, self._first)):
            first = self._first[group]
            each = slice(first, first + self._size[group])
            known = _together(number[each], acted[each], self._number(learning, each))
            if known is None and (known := _dispatched(number[each], acted[each])) is not None:
                part[each][1:] = known[1:] == known[:-1]
            if known is None:
                known = _one_by_one(number[each], acted[each])
            if known is not None:
                own = np.append(backwards[np.searchsorted(backwards, self._low[first]) :], NEVER)
                moment[each] = own[np.minimum(known, len(own) - 1)]
                found[each] = True
        return found, part

    def _ahead(self, acted: Flags) -> Ints:
        """By how many batches each iterator is ahead: fetches before anything was done with the first one."""
        import numpy as np

        active = np.where(acted, self._places, len(self._places))
        before = np.minimum.reduceat(active, self._first) - self._first
        found: Ints = np.where(before < self._size, before, 0)
        return found

    def _of_others(self, moment: Ints, purpose: Ints) -> Ints:
        """Which of the moments come after something else was fetched for training: an evaluation may lie in between, and no more."""
        import numpy as np

        late = np.flatnonzero(moment >= self._high[self._final])
        if not len(late):
            return late
        order = np.argsort(self._begun, kind="stable")
        last = order[np.searchsorted(self._begun[order], moment[late]) - 1]  # the last fetch before each
        found: Ints = late[purpose[last] != EVALUATE]
        return found

    def _left_out(self, acted: Flags, number: Ints, backwards: Ints) -> Flags:
        """Which iterators are not ahead though nothing was done with their first batches: the program passed them by.

        One that is ahead has so many more backwards after its last fetch, unless it was broken off. So of one or two batches a whole
        epoch has to tell. Others may be left out too, now and then.
        """
        import numpy as np

        silent = np.add.reduceat(~acted, self._first, dtype=np.int64)
        before = self._ahead(acted)
        last = self._low[self._final[self._first]]
        surplus = np.searchsorted(backwards, self._goes_on(number, last)) - np.searchsorted(backwards, last)
        seldom = silent - before < np.maximum(_SELDOM * (self._size - before), 1)
        may = (before > 0) & seldom & (self._size - before >= _FEWEST) & (surplus <= self._each(number, acted))
        whole = np.unique(self._loader[may & self._whole])
        found: Flags = may & ((before > _USUALLY) | np.isin(self._loader, whole))
        return found

    def _goes_on(self, number: Ints, moments: Ints) -> Ints:
        """When training begins with another iterator after each moment. An evaluation may lie in between."""
        import numpy as np

        trains = np.add.reduceat(number > 0, self._first, dtype=np.int64) > 1
        begun = np.sort(self._begun[self._first[trains]])
        following: Ints = np.append(begun, NEVER)[np.searchsorted(begun, moments)]
        return np.minimum(following, self._until)

    def _dropped(self, taught: Flags, acted: Flags, forwards: Forwards) -> Flags:
        """Windows without a backward of iterators that train: nothing was done in them, or only forwards as in training."""
        import numpy as np

        inner = self._places < self._final
        trains = np.add.reduceat(taught & inner, self._first, dtype=np.int64)
        works = np.add.reduceat(acted & inner, self._first, dtype=np.int64)
        some = np.flatnonzero(inner & ~taught & (2 * trains > works)[self._group])
        learning = self._number(forwards.among(FORWARD_TRAINING | FORWARD_GRAD), some)
        losses = self._number(forwards.among(FORWARD_TRAINING | FORWARD_GRAD | FORWARD_LOSS), some)
        alike = self._number(forwards.start, some) == learning + losses
        found = np.zeros(len(taught), bool)
        found[some] = alike  # also if there is none
        return found

    def _never_used(self, last: Flags, backwards: Ints) -> Flags:
        """Last batches of an iterator before whose next backward its loader was begun anew."""
        import numpy as np

        following = np.append(backwards, NEVER)[np.searchsorted(backwards, self._low)]
        until = self._until[self._group]
        # Not one that runs beside it, as in zip(loader, loader).
        found: Flags = last & (self._low <= until) & (until < following)
        return found

    def _passed_by(self, last: Flags, purpose: Ints, backwards: Ints) -> Ints:
        """Of last batches with which nothing was done: those before whose next backward another loader was begun, which goes on alone."""
        import numpy as np

        some = np.flatnonzero(last)
        order = np.argsort(self._begun, kind="stable")
        starts = self._begun[order]
        following = np.append(backwards, NEVER)[np.searchsorted(backwards, self._low[some])]
        nearest = order[np.searchsorted(starts, following) - 1]  # the last fetch before that backward
        anew = (nearest != some) & (nearest == self._first[self._group[nearest]]) & (nearest < self._final[nearest])
        place = np.argsort(order)
        alone = place[np.minimum(nearest + 1, len(order) - 1)] == place[nearest] + 1
        found: Ints = some[anew & alone & (following < NEVER) & (purpose[nearest] == TRAIN)]
        return found

    def _as_before(self, purpose: Ints, late: Ints, acted: Flags, hints: _Hints) -> Ints:
        """For batches used after the last fetch of their iterator: the purpose of the last one that is decided."""
        import numpy as np

        early = self._places.copy()
        early[late] = -1
        decided = np.maximum.reduceat(early, self._first)[self._group[late]]
        over = acted[self._final[late]] & (self._high[self._final[late]] < NEVER)
        alone = np.where(purpose[late] == TRAIN, TRAIN, np.where(over, EVALUATE, UNKNOWN))
        alone[hints.evaluates[self._group[late]]] = EVALUATE
        trains = self._any((early >= 0) & (purpose == TRAIN)) & hints.learns
        before = np.where((purpose[late] == TRAIN) & trains[self._group[late]], TRAIN, purpose[np.maximum(decided, 0)])
        found: Ints = np.where(decided >= 0, before, alone)
        return found

    def _hints(self, forwards: Forwards, own: Flags, number: Ints) -> _Hints:
        """What the first forward of a model after the last fetch of each iterator tells."""
        import numpy as np

        final = self._final[self._first]
        modes = self._first_modes(final, forwards)
        # A teacher goes before the model that learns from it. If the only batch of each epoch always has one backward, it is that.
        loaders, of = np.unique(self._loader, return_inverse=True)
        once = np.ones(len(loaders), bool)
        np.logical_and.at(once, of, (self._size == 1) & (number[final] == 1))
        learning = FORWARD_TRAINING | FORWARD_GRAD
        evaluates = (modes == 0) & ~(once[of] & own[final]) | ~own[final] & (modes >= 0) & (modes != learning)
        return _Hints(evaluates, modes == learning)

    def _first_modes(self, windows: Ints, forwards: Forwards) -> Ints:
        """The modes of the first forward of a model in each window; -1: there is none, or they are not known."""
        import numpy as np

        models = np.flatnonzero((forwards.key < 0) | (forwards.key & FORWARD_LOSS == 0))
        start, key = np.append(forwards.start[models], NEVER), np.append(forwards.key[models], -1)
        place = np.searchsorted(start[:-1], self._low[windows])
        known = (start[place] < self._high[windows]) & (key[place] >= 0)
        found: Ints = np.where(known, key[place] & _MODES, -1)
        return found


def _together(backwards: Ints, acted: Flags, learning: Ints) -> Ints | None:
    """Which backward of an iterator, counted from 0, each of its batches had, if there are so many. None: the numbers do not fit.

    Here: one follows all that were fetched at once. As many forwards each say that none was left out.
    """
    import numpy as np

    ends = np.flatnonzero(acted)
    many = np.diff(np.append(-1, ends))
    alike = len(ends) > 1 and many[0] > 1 and np.all(many == many[0]) and np.all(backwards[ends] == 1)
    if not alike or np.any(learning[ends] == 0) or np.any(learning[ends] % many[0]):
        return None
    place = np.searchsorted(ends, np.arange(len(backwards)))
    found: Ints = np.where(place < len(ends), place, NEVER)
    return found


def _dispatched(backwards: Ints, acted: Flags) -> Ints | None:
    """The same, where one process fetches for several: as many batches for each backward, and whole micro-batches ahead."""
    import numpy as np

    size, total = len(backwards), np.cumsum(backwards)
    inner = np.flatnonzero(acted[:-1])  # after the last fetch anything may come
    fetched, done = inner + 1, total[inner]
    if not len(inner) or not np.all(backwards[inner]):
        return None
    steady = len(inner) > 1
    share, rest = divmod(fetched[-1] - fetched[0], done[-1] - done[0]) if steady else divmod(size, total[-1])
    ahead = fetched[0] - share * done[0]
    whole = share > 1 and not rest and ahead >= 0 and ahead % share == 0 and np.all(fetched == share * done + ahead)
    if not whole or share * (total[-1] - 1) >= size:  # more backwards than micro-batches
        return None
    found: Ints = np.arange(size) // share
    return found


def _one_by_one(backwards: Ints, acted: Flags) -> Ints | None:
    """The same, where each batch has as many, one after the other."""
    import numpy as np

    size = len(backwards)
    several = np.flatnonzero(acted)
    most = int(np.diff(np.append(-1, several)).max(initial=1))  # fetched at once
    each = max(round(int(backwards.sum()) / size), 1)
    total = np.cumsum(backwards)
    used = int(total[-1]) // each
    places = np.arange(size)
    if each > 1 and size > _USUALLY + 1 and most == size:
        return np.full(size, NEVER)  # all of it is kept: nobody knows in which order it is gone through, and how often
    if most < 2 or backwards[:-1].max(initial=0) <= each or not 0 <= size - used <= most:
        return None
    found: Ints = np.maximum(places * each, total - backwards)  # not before it was fetched
    return found


def _last_of(iterators: Ints, rounds: Rounds | None) -> Ints:
    """When each of these iterators, which are in order, was last begun or ended; -1: that is not known."""
    import numpy as np

    found = np.full(len(iterators), -1)
    if rounds is not None:
        which = iteration_of(rounds.key)
        place = np.minimum(np.searchsorted(iterators, which), len(iterators) - 1)
        known = iterators[place] == which
        np.maximum.at(found, place[known], rounds.start[known])
    return found


def _next_of_any(starts: Ints, moments: Ints) -> Ints:
    """The next start after each moment."""
    import numpy as np

    ordered = starts if np.all(starts[1:] >= starts[:-1]) else np.sort(starts)
    found: Ints = np.append(ordered, NEVER)[np.searchsorted(ordered, moments, side="right")]
    return found
