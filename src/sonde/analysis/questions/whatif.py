"""Predicts the effect of other numbers of workers: a simulation of the loader with its recorded times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Start:
    """What the workers of a round cost, in ns. `again`: they start in each round, not only in the first."""

    create: float  # in the training process, for each worker
    boot: float  # from when all are created until they begin with their first batches; below 0: before that
    stop: float  # in the training process, for each worker
    again: bool


@dataclass(frozen=True)
class BatchTimes:
    """Times of batches in the order in which they were taken, in ns, and how many of them each round has."""

    fetch: Sequence[float]  # to make it
    handing: Sequence[float]  # from when it was made, or asked for if that was later, to the training process
    computing: Sequence[float]  # from then until the next one is asked for
    rounds: Sequence[int]
    start: Start


def simulated(times: BatchTimes, workers: int, prefetch: int) -> float:
    """How long all rounds take with so many workers, in ns.

    As torch does it: worker `n % workers` makes batch n, `workers * prefetch` batches are asked for at once, and one more each time
    one is taken. Without workers, the training process makes each batch itself.
    """
    now, at = 0.0, 0
    for number, count in enumerate(times.rounds):
        until = at + count
        if workers:
            fresh = times.start.again or not number
            now = _round(times, at, until, workers, prefetch, now, times.start if fresh else STARTED)
        else:
            now += sum(times.fetch[at:until]) + sum(times.computing[at:until])
        at = until
    return now


STARTED = Start(0.0, 0.0, 0.0, again=False)  # workers that are there already


def _round(times: BatchTimes, at: int, until: int, workers: int, prefetch: int, now: float, start: Start) -> float:
    begun, ahead = now + start.create * workers, workers * prefetch
    free = [max(now + start.create * (worker + 1), begun + start.boot) for worker in range(workers)]
    now = begun
    taken: list[float] = []
    for place in range(at, until):
        number = place - at
        worker = number % workers
        asked = begun if number < ahead else taken[number - ahead]
        made = max(asked, free[worker]) + times.fetch[place]
        free[worker] = made
        now = max(now, made) + times.handing[place]
        taken.append(now)
        now += times.computing[place]
    return now + start.stop * workers
