"""Numbers that torch computes where a tensor lies, read when they are there: at once on the host, later on a CUDA device.

The program never waits for a device. Numbers of other devices are left out and counted. There was no device where this was written.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[list[float]], None]

MOST = 64  # copies under way
NUMBERS = (float, int)


class _PendingCopy(NamedTuple):
    """Numbers on their way to the host, and who gets how many of them."""

    values: Any  # a vector in memory of the host
    done: Any  # the event behind the copy
    writers: list[tuple[int, Write]]


class PendingNumbers:
    """The numbers of this process that were asked for and not read yet."""

    def __init__(self) -> None:
        self._asked: list[tuple[list[Any], Write]] = []  # tensors of one device, and who gets their numbers
        self._copies: list[_PendingCopy] = []
        self.left_out = 0

    def add(self, scalars: list[Any], write: Write) -> None:
        """Call `write` with these numbers; those that are tensors have one element each, and lie on the host or on one device."""
        away = [place for place, one in enumerate(scalars) if type(one) not in NUMBERS and not one.is_cpu]
        if away:
            known = [None if place in away else float(one) for place, one in enumerate(scalars)]
            self._asked.append(([scalars[place] for place in away], lambda values: write(_filled(known, values))))
        elif scalars:
            write([one if type(one) in NUMBERS else one.item() for one in scalars])

    def add_vector(self, vector: Any, write: Write) -> None:
        """Call `write` with the numbers of a tensor with one dimension."""
        if vector.is_cpu:
            write(vector.tolist())
        else:
            self._asked.append(([vector], write))

    def order(self) -> None:
        """Let devices send what was asked for until now."""
        asked, self._asked = self._asked, []
        for device in dict.fromkeys(scalars[0].device for scalars, _ in asked):
            own = [one for one in asked if one[0][0].device == device]
            if device.type != "cuda" or len(self._copies) >= MOST:
                self.left_out += len(own)
            else:
                self._copies.append(_ordered(own))

    def collect(self) -> None:
        """Write what has arrived."""
        while self._copies and self._copies[0].done.query():
            copy = self._copies.pop(0)
            values, place = copy.values.tolist(), 0
            for count, write in copy.writers:
                write(values[place : place + count])
                place += count


def _filled(known: list[float | None], values: list[float]) -> list[float]:
    """Numbers that were known from the start, and those that came, in their order."""
    came = iter(values)
    return [next(came) if one is None else one for one in known]


def _ordered(asked: list[tuple[list[Any], Write]]) -> _PendingCopy:
    torch = sys.modules["torch"]
    vector = torch.cat([one.float().reshape(-1) for tensors, _ in asked for one in tensors])
    values = torch.empty_like(vector, device="cpu", pin_memory=True)
    values.copy_(vector, non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    return _PendingCopy(values, done, [(sum(one.numel() for one in tensors), write) for tensors, write in asked])
