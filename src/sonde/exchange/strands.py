"""Divides the spans of one thread into strands, so that on each strand they nest below their own parent.

A trace viewer draws a span below whatever encloses it in time on the same track. Interleaving tasks overlap without
nesting, and a generator encloses spans that it did not call; on one track such spans would be dropped or misdrawn.
"""

from __future__ import annotations

from typing import NamedTuple


class _OpenSlice(NamedTuple):
    start: int
    end: int
    seq: int


class Strands:
    """The open spans of one thread, strand by strand. Give it the spans in the order in which they were entered."""

    __slots__ = ("_strands", "_where")

    def __init__(self) -> None:
        self._strands: list[list[_OpenSlice]] = []  # for each strand what is open, outermost first
        self._where: dict[int, int] = {}  # seq -> strand, of what is open

    def place(self, seq: int, parent: int | None, start: int, end: int) -> int:
        """The strand of this span: its parent's if nothing else is open there in between, else the first free one."""
        strand = self._below(parent, start, end)
        if strand is None:
            strand = self._free(start)
        self._strands[strand].append(_OpenSlice(start, end, seq))
        self._where[seq] = strand
        return strand

    def _below(self, parent: int | None, start: int, end: int) -> int | None:
        strand = None if parent is None else self._where.get(parent)
        if strand is None:
            return None
        stack = self._running(strand, start)
        return strand if stack and stack[-1].seq == parent and end <= stack[-1].end else None

    def _free(self, start: int) -> int:
        for strand in range(len(self._strands)):
            if not self._running(strand, start):
                return strand
        self._strands.append([])
        return len(self._strands) - 1

    def _running(self, strand: int, now: int) -> list[_OpenSlice]:
        """What is still open on a strand at this time. What began and ended right now counts: viewers nest below it."""
        stack = self._strands[strand]
        while stack and stack[-1].end <= now and not stack[-1].start == stack[-1].end == now:
            self._where.pop(stack.pop().seq, None)
        return stack
