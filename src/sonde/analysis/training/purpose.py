"""What each batch was fetched for: training, if a backward followed before the next fetch of the same iterator.

- Loops that fetch ahead: `match.py` finds in which window a batch was used.
- After the last fetch of an iterator nothing shows whose backward follows. Such a batch has the purpose of the one before
  it. Without one before it, it was evaluation if the model went forward without training and gradients. A teacher before
  a backward that no other batch waits for is no evaluation.
- A batch that was still in hand when the training ended was used for nothing. If its iterator trains, and nothing was done with
  it, or it went forward as in training without a backward, the program left it out. The purpose of both is unknown.
- Some loops sum the losses of several batches and call backward once. There a batch without a backward was training if
  it went forward as in training, and most backwards of its iterator follow such a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sonde.analysis.training.match import count_bursts, moments_of, moments_of_updates, windows_used
from sonde.analysis.training.windows import (
    LEARNING,
    NEVER,
    Forwards,
    Rounds,
    ThreadWaits,
    count_in,
    next_after,
    total,
    windows_of,
)
from sonde.lazy import numpy as np
from sonde.store.probe import FORWARD_GRAD, FORWARD_LOSS, iteration_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sonde.analysis.training.windows import Flags, Ints, Windows

UNKNOWN, TRAIN, EVALUATE = range(3)
WORDS = ("unknown", "train", "evaluate")
_HABIT = 0.5  # an iterator sums losses if more than this share of its backwards are for several batches


class Purposes(NamedTuple):
    """For each fetch its purpose, and when its batch was used.

    That is the start of its backward; if that is not known, the start of the fetch after which it was used: its own, or a later one.
    NEVER: it was not used, or not yet. `part`: it is of one micro-batch with the batch before it.
    """

    purpose: NDArray[np.uint8]
    moment: Ints
    part: Flags


def purposes_of(
    waits: ThreadWaits, forwards: Forwards, backwards: Ints, rounds: Rounds | None = None, *, sparse: bool = False
) -> Purposes:
    """The purposes of all fetches. `backwards`: their starts, in order. `sparse`: one of them decides for its iterator."""
    if not len(waits.key):
        return all_trained(backwards[:0])
    if in_turn(waits, backwards) and not sparse:
        return all_trained(backwards)
    decide = _by_updates if sparse else _by_backwards
    iterator = iteration_of(waits.key)
    if np.all(iterator[1:] >= iterator[:-1]):
        return decide(windows_of(waits, forwards, backwards, rounds))
    order = np.argsort(iterator, kind="stable")
    found = decide(windows_of(ThreadWaits(*(column[order] for column in waits)), forwards, backwards, rounds))
    back = np.argsort(order)
    return Purposes(found.purpose[back], found.moment[back], found.part[back])


def all_trained(backwards: Ints) -> Purposes:
    """Each fetch was for training, and used in one of these."""
    return Purposes(np.full(len(backwards), TRAIN, np.uint8), backwards, np.broadcast_to(False, len(backwards)))


def in_turn(waits: ThreadWaits, backwards: Ints) -> bool:
    """Whether each fetch is followed by one backward, as it mostly is: then nothing need be matched."""
    return bool(
        len(backwards) == len(waits.key) and np.all(waits.end <= backwards) and np.all(backwards[:-1] < waits.start[1:])
    )


def _by_updates(windows: Windows) -> Purposes:
    """One update in an iterator shows that all of it was for training."""
    used = windows_used(windows)
    purpose = np.where(total(windows, windows.passes)[windows.group] > 0, TRAIN, EVALUATE)
    purpose = _purposes(windows, used, purpose, _follows_own(windows))
    moment = moments_of_updates(windows, used)
    return _result(windows, used, purpose, moment, np.zeros(len(used), bool))


def _by_backwards(windows: Windows) -> Purposes:
    """Each backward is for a batch of its own, or for several."""
    used = windows_used(windows)
    moment = moments_of(windows, used)
    counted, part = count_bursts(windows, moment)
    own = _follows_own(windows) & ~_is_taken(windows, moment)
    taught = (windows.passes > 0) | _sums_losses(windows, own)
    purpose = np.where(taught, TRAIN, EVALUATE)
    purpose[_left_out(windows, taught)] = UNKNOWN
    purpose = _purposes(windows, used, purpose, own)
    purpose[counted] = TRAIN
    last = (used == windows.final) & (windows.place == windows.final) & (purpose == TRAIN)
    unused = (purpose == TRAIN) & (used > windows.final) & (moment == NEVER) & ~counted
    purpose[unused | _begun_anew(windows, last)] = UNKNOWN
    purpose[_passed_over(windows, last & ~windows.acted, purpose)] = UNKNOWN
    moment[_of_others(windows, moment, purpose)] = NEVER
    found = _result(windows, used, purpose, moment, part)
    found.moment[unused] = NEVER
    return found


def _result(windows: Windows, used: Ints, purpose: Ints, moment: Ints, part: Flags) -> Purposes:
    """`moment` is that of training; other batches were used in the window that `used` names."""
    begun = windows.begun[np.minimum(used, windows.final)]
    return Purposes(purpose.astype(np.uint8), np.where(purpose == TRAIN, moment, begun), part)


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sums_losses(windows: Windows, own: Flags) -> Flags:
    """Windows without a backward whose losses are part of the next one."""
    passes, group = windows.passes, windows.group
    silent = np.flatnonzero(windows.acted & (passes == 0))
    learning = count_in(windows, windows.forwards.among(LEARNING), silent)
    # A model in evaluation mode with gradients left on is evaluation, in whatever mode its loss function is.
    learns = (learning > 0) & (count_in(windows, windows.forwards.among(FORWARD_GRAD), silent) == 0)
    found = np.zeros(len(passes), bool)
    found[silent[learns]] = True
    if not learns.any():
        return found
    done = np.flatnonzero(windows.acted)
    shared = np.zeros(len(passes), bool)
    shared[done[1:]] = found[done[:-1]] & (group[done[1:]] == group[done[:-1]])
    shared &= (passes == 1) & own
    decides = (passes > 0) & ((passes == 1) | (windows.place < windows.final))  # after the last fetch anything may come
    found &= (total(windows, shared) > _HABIT * total(windows, decides))[group]
    return found


def _left_out(windows: Windows, taught: Flags) -> Flags:
    """Windows without a backward in iterators that train: nothing was done in them, or only forwards as in training."""
    inner = windows.place < windows.final
    trains = 2 * total(windows, taught & inner) > total(windows, windows.acted & inner)
    some = np.flatnonzero(inner & ~taught & trains[windows.group])
    forwards = windows.forwards
    learning = count_in(windows, forwards.among(LEARNING), some)
    losses = count_in(windows, forwards.among(LEARNING | FORWARD_LOSS), some)
    found = np.zeros(len(taught), bool)
    found[some] = count_in(windows, forwards.start, some) == learning + losses
    return found


def _follows_own(windows: Windows) -> Flags:
    """Whether the first backward in each window is for its iterator, as far as can be known.

    It is not if something else was fetched meanwhile. After the last fetch it may be for a batch that was in hand before,
    or for none, in a training that began without a fetch.
    """
    starts, ends, begun = np.sort(windows.begun), np.sort(windows.low), windows.begun[windows.first]
    first = next_after(windows.backwards, windows.low)
    alone = np.searchsorted(starts, first) == np.searchsorted(starts, windows.low)
    before = np.searchsorted(ends, begun, side="right") - 1  # the last fetch of any iterator
    forwards = windows.forwards.start
    used = np.searchsorted(forwards, begun) > np.searchsorted(forwards, ends[np.maximum(before, 0)])
    fed = not np.any(windows.backwards[:1] < starts[0])
    found: Flags = alone & ((windows.place < windows.final) | (fed & ((before < 0) | used))[windows.group])
    return found


def _is_taken(windows: Windows, moment: Ints) -> Flags:
    """Last windows whose first backward is for a batch that another iterator had fetched ahead before."""
    trains = (total(windows, windows.passes) > 0)[windows.group]
    late = np.flatnonzero((moment >= windows.high[windows.final]) & (moment < NEVER) & trains)
    found = np.zeros(len(moment), bool)
    if len(late):
        late = late[np.lexsort((windows.begun[late], moment[late]))]
        first = next_after(windows.backwards, windows.low[windows.last])
        who = late[np.minimum(np.searchsorted(moment[late], first), len(late) - 1)]
        found[windows.last] = (moment[who] == first) & (windows.begun[who] < windows.begun[windows.first])
    return found


# ── batches used after the last fetch ────────────────────────────────────────────────────────────────────────────────


def _purposes(windows: Windows, used: Ints, purpose: Ints, own: Flags) -> Ints:
    """The purpose of each batch: that of the window in which it was used; after the last fetch, of the batch before it."""
    found: Ints = purpose[np.minimum(used, windows.final)]
    late = np.flatnonzero(used >= windows.final)
    group, final = windows.group[late], windows.final[late]
    early = windows.place.copy()
    early[late] = -1
    before = np.maximum.reduceat(early, windows.first)[group]  # the last batch that is decided; -1: there is none
    evaluates, learns = _looks_like(windows, own)
    over = windows.acted[final] & (windows.high[final] < NEVER)
    alone = np.where(found[late] == TRAIN, TRAIN, np.where(over, EVALUATE, UNKNOWN))
    alone[evaluates[group]] = EVALUATE
    trains = (total(windows, (early >= 0) & (found == TRAIN)) > 0) & learns
    as_before = np.where((found[late] == TRAIN) & trains[group], TRAIN, found[np.maximum(before, 0)])
    found[late] = np.where(before >= 0, as_before, alone)
    return found


def _looks_like(windows: Windows, own: Flags) -> tuple[Flags, Flags]:
    """For each iterator: does the first forward after its last fetch look like evaluation, and like training?"""
    modes, own = _first_modes(windows), own[windows.last]
    # A teacher goes before the model that learns from it. If the only batch of each epoch always has one backward, it is that.
    loaders, of = np.unique(windows.loader, return_inverse=True)
    once = np.ones(len(loaders), bool)
    np.logical_and.at(once, of, (windows.size == 1) & (windows.passes[windows.last] == 1))
    evaluates = (modes == 0) & ~(once[of] & own) | ~own & (modes >= 0) & (modes != LEARNING)
    return evaluates, modes == LEARNING


def _first_modes(windows: Windows) -> Ints:
    """The modes of the first forward of a model in the last window of each iterator; -1: none, or not known."""
    start, key = windows.forwards
    models = np.flatnonzero((key < 0) | (key & FORWARD_LOSS == 0))
    start, key = np.append(start[models], NEVER), np.append(key[models], -1)
    place = np.searchsorted(start[:-1], windows.low[windows.last])
    known = (start[place] < windows.high[windows.last]) & (key[place] >= 0)
    found: Ints = np.where(known, key[place] & LEARNING, -1)
    return found


# ── batches that were not used ───────────────────────────────────────────────────────────────────────────────────────


def _begun_anew(windows: Windows, last: Flags) -> Flags:
    """Last batches of an iterator before whose next backward its loader was begun anew."""
    until = windows.until[windows.group]
    # Not one that runs beside it, as in zip(loader, loader).
    found: Flags = last & (windows.low <= until) & (until < next_after(windows.backwards, windows.low))
    return found


def _passed_over(windows: Windows, last: Flags, purpose: Ints) -> Ints:
    """Of last batches with which nothing was done: those before whose next backward another loader began, which goes on alone."""
    some = np.flatnonzero(last)
    order = np.argsort(windows.begun, kind="stable")
    following = next_after(windows.backwards, windows.low[some])
    nearest = order[np.searchsorted(windows.begun[order], following) - 1]  # the last fetch before that backward
    first = windows.first[windows.group[nearest]]
    anew = (nearest != some) & (nearest == first) & (nearest < windows.final[nearest])
    place = np.argsort(order)
    alone = place[np.minimum(nearest + 1, len(order) - 1)] == place[nearest] + 1
    found: Ints = some[anew & alone & (following < NEVER) & (purpose[nearest] == TRAIN)]
    return found


def _of_others(windows: Windows, moment: Ints, purpose: Ints) -> Ints:
    """Which moments come after another fetch for training. Only an evaluation may lie in between."""
    late = np.flatnonzero(moment >= windows.high[windows.final])
    order = np.argsort(windows.begun, kind="stable") if len(late) else late
    last = order[np.searchsorted(windows.begun[order], moment[late]) - 1]  # the last fetch before each
    found: Ints = late[purpose[last] != EVALUATE]
    return found
