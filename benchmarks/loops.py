"""The measured loops: CPU ns per iteration, the empty loop (or the empty call) not yet subtracted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Loop = Callable[[int], float]


def _timed(start: int, count: int) -> float:
    return (time.thread_time_ns() - start) / count


def empty() -> None:
    """What is called when nothing is recorded."""


def nothing() -> Loop:
    """The loop itself."""

    def loop(count: int) -> float:
        start = time.thread_time_ns()
        for _ in range(count):
            pass
        return _timed(start, count)

    return loop


def calling(function: Callable[[], object]) -> Loop:
    """A call of a function without arguments."""

    def loop(count: int) -> float:
        start = time.thread_time_ns()
        for _ in range(count):
            function()
        return _timed(start, count)

    return loop


def entering(span: AbstractContextManager[Any]) -> Loop:
    """`with` on an object that is used again and again."""

    def loop(count: int) -> float:
        start = time.thread_time_ns()
        for _ in range(count):
            with span:
                pass
        return _timed(start, count)

    return loop


def making(make: Callable[[], AbstractContextManager[Any]]) -> Loop:
    """`with` on an object that is made for each span."""

    def loop(count: int) -> float:
        start = time.thread_time_ns()
        for _ in range(count):
            with make():
                pass
        return _timed(start, count)

    return loop


def stepping(update: Callable[..., object]) -> Loop:
    """`update(step=i)`."""

    def loop(count: int) -> float:
        start = time.thread_time_ns()
        for step in range(count):
            update(step=step)
        return _timed(start, count)

    return loop
