"""Stacks of threads, as faulthandler writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_FRAMES = 50
# Frames of the recording half: who writes the stacks is of no interest.
OURS = re.compile(r"/sonde/(?:blackbox|boot|capture|events|flow|hooks|native|nonfinite|probes|values)/")
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-fA-F]+(?: \[([^\]]{0,100})\])?.*$", re.MULTILINE)
_FRAME = re.compile(r'  File "([^"]*)", line (\d+|\?\?) in (.*)')


@dataclass(frozen=True)
class ThreadStack:
    """Where a thread was: the innermost frames first."""

    name: str
    current: bool
    frames: list[str]


def threads_in(text: str) -> list[ThreadStack]:
    """The threads in what faulthandler wrote."""
    heads = list(_THREAD.finditer(text))
    found = []
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
        frames = [match for line in text[head.end() : end].splitlines() if (match := _FRAME.match(line))]
        while frames and OURS.search(frames[0][1]):
            frames.pop(0)
        lines = [f"{one[3]} ({one[1].rpartition('/')[2]}:{one[2]})" for one in frames[:MOST_FRAMES]]
        found.append(ThreadStack(head[2] or f"thread {number + 1}", head[1] == "Current thread", lines))
    return found
