"""The CPU time of each step of a program, printed as one line of JSON at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from statistics import quantiles
from typing import TypeVar

T = TypeVar("T")
WARM_UP = 30  # steps


def timed(batches: Iterable[T], steps: int) -> Iterator[T]:
    """The first `steps` batches. A step lasts from one batch to the next, loading included."""
    taken = []
    source = iter(batches)
    for step in range(WARM_UP + steps):
        begun = time.thread_time_ns()
        yield next(source)
        if step >= WARM_UP:
            taken.append((time.thread_time_ns() - begun) / 1000)
    low, middle, high = quantiles(taken, n=10)[0], quantiles(taken, n=2)[0], quantiles(taken, n=10)[-1]
    print(json.dumps({"p10_us": low, "p50_us": middle, "p90_us": high}), flush=True)
