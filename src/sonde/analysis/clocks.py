"""How the clocks of two hosts differ, measured by the collectives that both took part in, and when a wall clock was set.

Nobody leaves a collective before the last has entered it. So each collective says how far the clock can be ahead at most, and at least.
A straight line through all of these bounds is its offset and its drift; how far such a line can move is the error.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sonde.lazy import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sonde.store.process import Info

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

FASTEST = 500e-6  # no clock of a computer runs wrong by more
MOST_STRETCHES = 8  # more of them are no jumps of a clock: the collectives did not keep the hosts together
SLACKS = (0.0, 1e5, 1e6, 1e7, 1e8, 1e9)  # ns: by so much bounds may be wrong, if a line through them needs it
SMALL = 3  # so many of them are smaller than a jump that matters
JUMP_NS = 10_000_000  # both clocks are read one after the other: a smaller difference may be a pause between
ROUNDS = 50  # of looking closer, to find the best line


class ClockJump(NamedTuple):
    """Somebody has set the wall clock of a host by `ns`, between two moments of its monotonic clock."""

    ns: int
    after: int
    before: int


class ClockStretch(NamedTuple):
    """How far a clock was ahead, while it ran evenly: `offset_ns` at the moment `at_ns` of this clock, then `drift` more for each ns.

    It covers so many `collectives`, from the moment `from_ns` on. `error_ns`: the offset is not further off, at any of them.
    """

    from_ns: int
    until_ns: int
    at_ns: int
    offset_ns: int
    drift: float
    error_ns: int
    collectives: int


def stretches(times: Ints, low: Ints, high: Ints, slack_ns: float = 0.0) -> list[ClockStretch]:
    """The stretches in which a clock ran evenly; empty if none of it fits.

    At the moment `times` of the other clock, it was ahead by no less than `low` and no more than `high`, both give or take `slack_ns`.
    """
    if not len(times):
        return []
    order = np.argsort(times, kind="stable")
    times, low, high = times[order], low[order], high[order]
    for slack in SLACKS[:SMALL]:  # a jump that is smaller than that is not worth a stretch of its own
        whole = _Bounds(times, low, high, slack_ns + slack)
        if whole.margin >= 0:
            return [whole.stretch()]
    for slack in SLACKS:
        found = _cut(times, low, high, slack_ns + slack)
        if len(found) <= min(MOST_STRETCHES, 1 + len(times) // 16):
            return found
    return []


def apart(times: Ints, ahead: Ints) -> Floats:
    """How far each difference between two clocks is from an even course, in ns."""
    if len(times) < 3:
        return np.zeros(len(times))
    moved = (times - times[0]).astype(np.float64)
    differences = (ahead - ahead[0]).astype(np.float64)
    half = len(times) // 2
    first, last = np.median(moved[:half]), np.median(moved[-half:])
    drift = (np.median(differences[-half:]) - np.median(differences[:half])) / max(last - first, 1.0)
    left = differences - np.clip(drift, -FASTEST, FASTEST) * moved
    found: Floats = np.abs(left - np.median(left))
    return found


def _cut(times: Ints, low: Ints, high: Ints, slack: float) -> list[ClockStretch]:
    """As few stretches as it can be: each as long as a straight line fits through its bounds."""
    found: list[ClockStretch] = []
    begin = 0
    while begin < len(times) and len(found) <= MOST_STRETCHES:
        fits, fails = 0, len(times) - begin + 1
        while fails - fits > 1:
            middle = (fits + fails) // 2
            end = begin + middle
            good = _Bounds(times[begin:end], low[begin:end], high[begin:end], slack).margin >= 0
            fits, fails = (middle, fails) if good else (fits, middle)
        end = begin + max(fits, 1)
        found.append(_Bounds(times[begin:end], low[begin:end], high[begin:end], slack).stretch())
        begin = end
    return found


class _Bounds:
    """Bounds of a line. `drift` is that of the line which keeps the largest distance from all of them, its `margin`."""

    def __init__(self, times: Ints, low: Ints, high: Ints, slack: float) -> None:
        self._start, self._base = int(times[0]), int(low[0])
        self._times = (times - times[0]).astype(np.float64)
        self._low = (low - low[0]).astype(np.float64) - slack
        self._high = (high - low[0]).astype(np.float64) + slack
        self._ends = (self._times[0], self._times[-1])
        self.drift = self._best()
        self.margin = self._margin(self.drift)

    def stretch(self) -> ClockStretch:
        """The line, and how far another one that fits can be from it."""
        middle = sum(self._ends) / 2
        least, most = self._range(self.drift)
        offset = (least + most) / 2 + self.drift * middle
        error = max(
            abs(other - (offset + self.drift * (end - middle))) for end in self._ends for other in self._reach(end)
        )
        at = self._start + int(middle)
        ahead = self._base + round(offset)
        first, last = (self._start + int(end) + ahead + round(self.drift * (end - middle)) for end in self._ends)
        drift = self.drift / (1 + self.drift)  # for each ns of this clock, not of the other one
        return ClockStretch(first, last, at + ahead, ahead, drift, int(np.ceil(error)), len(self._times))

    def _range(self, drift: float) -> tuple[float, float]:
        """Where lines of this drift can begin."""
        moved = drift * self._times
        return float((self._low - moved).max()), float((self._high - moved).min())

    def _margin(self, drift: float) -> float:
        least, most = self._range(drift)
        return (most - least) / 2

    def _best(self) -> float:
        """The middle of all drifts with at least half of the largest margin, which is a concave function of the drift."""
        left, right = -FASTEST, FASTEST
        for _ in range(ROUNDS):
            third = (right - left) / 3
            if self._margin(left + third) < self._margin(right - third):
                left += third
            else:
                right -= third
        top = (left + right) / 2
        least = min(self._margin(top) / 2, self._margin(top) - 1.0)
        return (self._limit(top, -FASTEST, least) + self._limit(top, FASTEST, least)) / 2

    def _reach(self, moment: float) -> Sequence[float]:
        """The lowest and the highest value at a moment of all lines that fit."""
        if self.margin < 0:  # a single collective, with more room than a day
            return self._range(self.drift)
        slow, fast = self._limit(self.drift, -FASTEST), self._limit(self.drift, FASTEST)
        lowest = self._extreme(moment, slow, fast, 0)
        highest = self._extreme(moment, slow, fast, 1)
        return lowest, highest

    def _limit(self, inside: float, outside: float, least: float = 0.0) -> float:
        """The drift farthest from one to the other that has a margin, and no smaller one."""
        if self._margin(outside) >= least:
            return outside
        for _ in range(ROUNDS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self._margin(middle) >= least else (inside, middle)
        return outside

    def _extreme(self, moment: float, slow: float, fast: float, side: int) -> float:
        """The lowest (0) or highest (1) value: convex, or concave, in the drift."""
        sign = -1.0 if side else 1.0

        def value(drift: float) -> float:
            return sign * (self._range(drift)[side] + drift * moment)

        left, right = slow, fast
        for _ in range(ROUNDS):
            third = (right - left) / 3
            if value(left + third) > value(right - third):
                left += third
            else:
                right -= third
        return sign * value((left + right) / 2)


# ── the wall clock ───────────────────────────────────────────────────────────────────────────────────────────────────


def jumps_of(infos: Iterable[Info]) -> dict[str, dict[str | None, list[ClockJump] | None]]:
    """For each host and boot how the wall clock was set; None: nobody has seen it twice."""
    seen: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
    for info in infos:
        moments = [one for one in (info.start, info.end) if one is not None]
        seen.setdefault((info.host, info.boot_id), []).extend(
            (one.mono_ns, one.wall_ns - one.mono_ns) for one in moments
        )
    found: dict[str, dict[str | None, list[ClockJump] | None]] = {}
    for (host, boot), looks in seen.items():
        looks.sort()
        found.setdefault(host, {})[boot] = None if len(looks) < 2 else [
            ClockJump(after[1] - before[1], before[0], after[0])
            for before, after in pairwise(looks)
            if abs(after[1] - before[1]) >= JUMP_NS
        ]  # fmt: skip
    return found
