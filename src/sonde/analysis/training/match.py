"""Which backward used each batch: batches are matched with backwards first-in first-out.

Some loops fetch ahead: an iterator with n fetches before its first forward is n - 1 batches ahead from then on. Some fetch all
micro-batches of a step at once, and some fetch in one process for several. There backwards and batches are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.analysis.training.windows import LEARNING, NEVER, count_in, next_after, total
from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from sonde.analysis.training.windows import Flags, Ints, Windows

_USUALLY = 2  # the most batches that a loop is usually ahead
_SELDOM = 0.25  # an iterator leaves out fewer of its batches than this share, beside its first ones
_FEWEST = 3  # batches used one by one after some that were not: the program left those out


def windows_used(windows: Windows) -> Ints:
    """For each batch the window in which it was used; behind that of the last fetch for batches still in hand then."""
    before = _before_use(windows)
    ahead = np.where(_left_out(windows, before), 0, before)
    found: Ints = windows.place + ahead[windows.group]
    return found


def _before_use(windows: Windows) -> Ints:
    """For each iterator, the fetches before anything was done with the first one."""
    active = np.where(windows.acted, windows.place, len(windows.place))
    before = np.minimum.reduceat(active, windows.first) - windows.first
    found: Ints = np.where(before < windows.size, before, 0)
    return found


def _left_out(windows: Windows, before: Ints) -> Flags:
    """Which iterators are not ahead, though nothing was done with their first batches: the program left those out.

    One that is ahead has as many more backwards after its last fetch, unless it was broken off. So a whole epoch
    decides about one or two batches. The program may also leave out a batch now and then.
    """
    size, idle = windows.size, total(windows, ~windows.acted)
    end = windows.low[windows.last]
    goes_on = _next_training(windows, end)
    surplus = np.searchsorted(windows.backwards, goes_on) - np.searchsorted(windows.backwards, end)
    seldom = idle - before < np.maximum(_SELDOM * (size - before), 1)
    may = (before > 0) & seldom & (size - before >= _FEWEST) & (surplus <= _passes_per_batch(windows))
    whole = np.unique(windows.loader[may & windows.whole])
    found: Flags = may & ((before > _USUALLY) | np.isin(windows.loader, whole))
    return found


def _next_training(windows: Windows, moments: Ints) -> Ints:
    """When training begins with another iterator after each moment. An evaluation may lie in between."""
    trains = total(windows, windows.passes > 0) > 1
    begun = np.sort(windows.begun[windows.first[trains]])
    return np.minimum(next_after(begun, moments), windows.until)


def _passes_per_batch(windows: Windows) -> Ints:
    """For each iterator, about how many backwards each of its batches has."""
    inner = windows.acted & (windows.place < windows.final)
    batches, passes = total(windows, inner), total(windows, np.where(inner, windows.passes, 0))
    found = np.where(batches > 0, passes / np.maximum(batches, 1), total(windows, windows.passes) / windows.size)
    return np.maximum(np.rint(found).astype(np.int64), 1)


def moments_of(windows: Windows, used: Ints) -> Ints:
    """The backward of each batch; if its window has none, when the fetch of that window began."""
    over, window = np.maximum(used - windows.final, 0), np.minimum(used, windows.final)
    first = np.searchsorted(windows.backwards, windows.low[window])
    found = _at(windows.backwards, first + over * _passes_per_batch(windows)[windows.group])
    known = found < np.where(over > 0, NEVER, windows.high[window])
    return np.where(known, found, np.where(over > 0, NEVER, windows.begun[window]))


def moments_of_updates(windows: Windows, used: Ints) -> Ints:
    """The same where updates stand in the place of backwards: after the last fetch, at the pace at which they use batches."""
    over, window = np.maximum(used - windows.final, 0), np.minimum(used, windows.final)
    pace = np.minimum(total(windows, windows.passes) / windows.size, 1.0)[windows.group]
    first = np.searchsorted(windows.backwards, windows.low[window])
    found = _at(windows.backwards, first + (over * pace).astype(np.int64))
    return np.where(over > 0, np.where(found < NEVER, found - 1, NEVER), windows.begun[window])


def _at(moments: Ints, places: Ints) -> Ints:
    """The moments at these places; NEVER: there are not so many."""
    found: Ints = np.append(moments, NEVER)[np.minimum(places, len(moments))]
    return found


def count_bursts(windows: Windows, moment: Ints) -> tuple[Flags, Flags]:
    """Correct `moment` for iterators that fetch several batches at once.

    Returns which batches are theirs, and which are of one micro-batch with the batch before them.
    """
    acted, group = windows.acted, windows.group
    learning = windows.forwards.among(LEARNING)
    bursts = np.append(~acted[:-1] & (group[1:] == group[:-1]), False)
    found, part = np.zeros((2, len(moment)), bool)
    for one in np.flatnonzero(total(windows, bursts)):
        each = slice(windows.first[one], windows.last[one] + 1)
        passes = windows.passes[each]
        known = _one_per_burst(passes, acted[each], count_in(windows, learning, each))
        if known is None and (known := _one_per_share(passes, acted[each])) is not None:
            part[each][1:] = known[1:] == known[:-1]
        if known is None:
            known = _as_many_each(passes, acted[each])
        if known is not None:
            own = windows.backwards[np.searchsorted(windows.backwards, windows.low[each.start]) :]
            moment[each] = _at(own, known)
            found[each] = True
    return found, part


# Each of these tries one pattern on the windows of one iterator. It returns which backward of the iterator, counted from 0,
# each batch had (NEVER: none), or None if the numbers do not fit.


def _one_per_burst(passes: Ints, acted: Flags, learning: Ints) -> Ints | None:
    """One backward follows all batches that were fetched at once. As many forwards show that none was left out."""
    ends = np.flatnonzero(acted)
    many = np.diff(np.append(-1, ends))
    alike = len(ends) > 1 and many[0] > 1 and np.all(many == many[0]) and np.all(passes[ends] == 1)
    if not alike or np.any(learning[ends] == 0) or np.any(learning[ends] % many[0]):
        return None
    place = np.searchsorted(ends, np.arange(len(passes)))
    found: Ints = np.where(place < len(ends), place, NEVER)
    return found


def _one_per_share(passes: Ints, acted: Flags) -> Ints | None:
    """One process fetches for several: as many batches for each backward, and whole micro-batches ahead."""
    size, done_until = len(passes), np.cumsum(passes)
    inner = np.flatnonzero(acted[:-1])  # after the last fetch anything may come
    fetched, done = inner + 1, done_until[inner]
    if not len(inner) or not np.all(passes[inner]):
        return None
    steady = len(inner) > 1
    share, rest = divmod(fetched[-1] - fetched[0], done[-1] - done[0]) if steady else divmod(size, done_until[-1])
    ahead = fetched[0] - share * done[0]
    whole = share > 1 and not rest and ahead >= 0 and ahead % share == 0 and np.all(fetched == share * done + ahead)
    if not whole or share * (done_until[-1] - 1) >= size:  # more backwards than micro-batches
        return None
    found: Ints = np.arange(size) // share
    return found


def _as_many_each(passes: Ints, acted: Flags) -> Ints | None:
    """Each batch has as many backwards, one batch after the other."""
    size, done_until = len(passes), np.cumsum(passes)
    most = int(np.diff(np.append(-1, np.flatnonzero(acted))).max(initial=1))  # fetched at once
    each = max(round(int(done_until[-1]) / size), 1)
    if each > 1 and size > _USUALLY + 1 and most == size:
        return np.full(
            size, NEVER
        )  # the program holds all of it: in which order it uses it, and how often, is not known
    if most < 2 or passes[:-1].max(initial=0) <= each or not 0 <= size - int(done_until[-1]) // each <= most:
        return None
    found: Ints = np.maximum(np.arange(size) * each, done_until - passes)  # not before it was fetched
    return found
