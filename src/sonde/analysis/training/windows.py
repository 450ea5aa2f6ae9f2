"""The windows of fetches: what happened after each fetch, until the next one of the same iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from sonde.lazy import numpy as np
from sonde.store.probe import FORWARD_GRAD, FORWARD_LOSS, FORWARD_TRAINING, iteration_of, loader_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

NEVER = 2**63 - 1
LEARNING = FORWARD_TRAINING | FORWARD_GRAD  # the modes of a forward in training
_MODES = LEARNING | FORWARD_LOSS  # a loss function is in training mode wherever it is called


class ThreadWaits(NamedTuple):
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


class Windows(NamedTuple):
    """Fetches sorted by their iterator, and what happened in the window of each."""

    forwards: Forwards
    backwards: Ints  # their starts, in order; or those of updates
    # One value per fetch:
    place: Ints
    group: Ints  # the place of its iterator among all
    final: Ints  # the last fetch of its iterator
    begun: Ints  # when the fetch began
    low: Ints  # the window: from here
    high: Ints  # to before this
    passes: Ints  # backwards in the window
    acted: Flags  # the window has a backward or a forward
    # One value per iterator:
    first: Ints  # its first fetch
    last: Ints  # its last fetch
    size: Ints  # its fetches
    loader: Ints
    until: Ints  # when the next iterator of its loader began
    whole: Flags  # the program asked for all of it


def windows_of(waits: ThreadWaits, forwards: Forwards, backwards: Ints, rounds: Rounds | None) -> Windows:
    """The windows of fetches that are sorted by their iterator; there is at least one."""
    iterator = iteration_of(waits.key)
    ends = np.append(iterator[1:] != iterator[:-1], True)
    place = np.arange(len(iterator))
    group = np.cumsum(np.append(False, ends[:-1]))
    last = np.flatnonzero(ends)
    first = np.append(0, last[:-1] + 1)
    loader = loader_of(waits.key)[first]
    anew = np.append(loader[1:] == loader[:-1], False)
    until = np.where(anew, np.append(waits.start[first[1:]], NEVER), NEVER)
    high = np.append(waits.start[1:], 0)
    high[ends] = next_after(np.sort(waits.start), waits.start[ends], side="right")
    passes = np.searchsorted(backwards, high) - np.searchsorted(backwards, waits.end)
    acted = (passes > 0) | (np.searchsorted(forwards.start, high) > np.searchsorted(forwards.start, waits.end))
    whole = (_last_of(iterator[ends], rounds) >= waits.end[ends]) | (until < NEVER)
    return Windows(
        forwards, backwards,
        place, group, last[group], waits.start, waits.end, high, passes, acted,
        first, last, last - first + 1, loader, until, whole,
    )  # fmt: skip


def count_in(windows: Windows, moments: Ints, places: Ints | slice) -> Ints:
    """How many of the moments lie in each of some windows."""
    low, high = windows.low[places], windows.high[places]
    found: Ints = np.searchsorted(moments, high) - np.searchsorted(moments, low)
    return found


def total(windows: Windows, values: Ints | Flags) -> Ints:
    """For each iterator the sum over its fetches."""
    found: Ints = np.add.reduceat(values, windows.first, dtype=np.int64)
    return found


def next_after(ordered: Ints, moments: Ints, side: Literal["left", "right"] = "left") -> Ints:
    """The next of the ordered moments at or after each; NEVER: there is none. `right`: after each."""
    found: Ints = np.append(ordered, NEVER)[np.searchsorted(ordered, moments, side)]
    return found


def _last_of(iterators: Ints, rounds: Rounds | None) -> Ints:
    """When each of these iterators, which are in order, last began or ended; -1: not known."""
    found = np.full(len(iterators), -1)
    if rounds is not None:
        which = iteration_of(rounds.key)
        place = np.minimum(np.searchsorted(iterators, which), len(iterators) - 1)
        known = iterators[place] == which
        np.maximum.at(found, place[known], rounds.start[known])
    return found
