"""Finds the ends of spans that arrive in order of their starts, for formats that write ends or add up stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sonde.exchange.rows import EventRow

Frame = TypeVar("Frame")


class NestedSpan(Generic[Frame]):
    """A span that has not ended yet. `frame` is what the format keeps of it, `inner` the time of its children."""

    __slots__ = ("end", "frame", "inner", "seq", "start", "track")

    def __init__(self, track: int, row: EventRow, frame: Frame) -> None:
        self.track = track
        self.start = row.start
        self.end = row.end
        self.seq = row.seq
        self.frame = frame
        self.inner = 0


class Nesting(Generic[Frame]):
    """The open spans of one thread, track by track; `ended` gets each one that ends, inner ones first."""

    def __init__(self, ended: Callable[[NestedSpan[Frame]], None]) -> None:
        self._ended = ended
        self._open: dict[int, list[NestedSpan[Frame]]] = {}
        self._thread: tuple[str, int] | None = None

    def above(self, track: int, row: EventRow) -> NestedSpan[Frame] | None:
        """What encloses a row on its track, once everything has ended that is over by then."""
        if (row.process, row.lane) != self._thread:
            self.close()
            self._thread = (row.process, row.lane)
        stack = self._open.get(track, [])
        # What begins and ends right now may still be a parent.
        while stack and (stack[-1].end < row.start or (stack[-1].end == row.start and stack[-1].seq != row.parent)):
            self._ended(stack.pop())
        return stack[-1] if stack else None

    def enter(self, track: int, row: EventRow, frame: Frame) -> None:
        """A span begins; `above` was called with it."""
        stack = self._open.setdefault(track, [])
        if stack:
            stack[-1].inner += row.end - row.start
        stack.append(NestedSpan(track, row, frame))

    def close(self) -> None:
        """The thread is complete."""
        for stack in self._open.values():
            while stack:
                self._ended(stack.pop())
        self._open.clear()
