"""A clock for tests, which you move by hand."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sonde.events import core
from sonde.testing.building import START_NS


class FakeClock:
    """A monotonic clock that you move by hand. `with FakeClock() as clock:` replaces the real one."""

    def __init__(self, start_ns: int = START_NS) -> None:
        """`start_ns`: the first reading."""
        self.now_ns = start_ns

    def __call__(self) -> int:
        """The current reading, in nanoseconds."""
        return self.now_ns

    def advance(self, ns: int = 0, seconds: float = 0.0) -> None:
        """Move the clock forward."""
        self.now_ns += ns + round(seconds * 1_000_000_000)

    def __enter__(self) -> Self:
        core.set_clock(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        core.set_clock(None)
