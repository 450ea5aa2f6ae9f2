"""Which steps are sampled: every N-th at first, then less often, so that samples cost at most 2 % of the time.

Who asks for less than every 10th step gets all of them, whatever that costs.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from sonde.guard import guard

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

SHARE = 0.02  # of the time
FREE = 20  # first samples, which may cost more: a short training needs some
WINDOW = 4  # samples by which it is judged: one may be slow by chance
MEANT = 10  # steps; a shorter interval stays what it is
LONGEST = 1 << 30  # steps between two samples


class Pace:
    """The interval between samples. It doubles, so that ranks which do not agree still share steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._meant = every < MEANT
        self._samples = 0
        self._spent = 0
        self._begun = 0

    def due(self, step: int) -> bool:
        """Is this step sampled?"""
        return step % self._every == 0

    def near(self, step: int) -> bool:
        """Is this step or the next one?"""
        return step % self._every == 0 or (step + 1) % self._every == 0

    def sampled(self, spent: int) -> None:
        """A sample has ended; `spent`: what all of them have cost until now, in ns."""
        self._samples += 1
        if self._meant or self._samples % WINDOW:
            return
        now = monotonic_ns()
        cost, passed = spent - self._spent, now - self._begun
        self._spent, self._begun = spent, now
        if self._samples > FREE and cost > SHARE * passed and self._every < LONGEST:
            self._every *= 2


class Timed(guard[None]):
    """A guard that adds up the time inside of it, in ns."""

    __slots__ = ("_begun", "spent")

    def __init__(self, doing: str, give_up: Callable[[], None]) -> None:
        super().__init__(doing, then=give_up)
        self.spent = 0
        self._begun = 0

    def __enter__(self) -> None:
        self._begun = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        self.spent += monotonic_ns() - self._begun
        return super().__exit__(kind, error, trace)
